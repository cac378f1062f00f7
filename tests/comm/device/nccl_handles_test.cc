#include "comm/native/nccl_handles.h"

#include <gmock/gmock.h>

#include <string>

#include "comm/native/nccl_library.h"

namespace kolo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of_library(const std::string& library) {
  try {
    nccl(library);
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kConfig);
    return error.what();
  }
  return "";
}

// The first test, because a process loads one library.
TEST(NcclLibrary, AnotherLibraryIsRefusedWithARemedy) {
  EXPECT_THAT(refusal_of_library("/nowhere/libnccl.so.2"),
              AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("KOLO_NCCL_LIBRARY")));
  EXPECT_THAT(refusal_of_library("libm.so.6"), HasSubstr("ncclAllGather"));
  const NcclLibrary& loaded = nccl();
  EXPECT_EQ(&nccl(), &loaded);
  EXPECT_THAT(refusal_of_library("/nowhere/libnccl.so.2"),
              HasSubstr("this process has loaded NCCL from 'libnccl.so.2' already"));
}

TEST(NcclHandles, EveryTypeAndOperationHasItsOwn) {
  std::set<ncclDataType_t> types;
  for (const DType dtype : kNumberDTypes) types.insert(to_nccl(dtype));
  EXPECT_EQ(types.size(), std::size(kNumberDTypes));
  std::set<ncclRedOp_t> ops;
  for (const ReduceOp op : kNumberOps) ops.insert(to_nccl(op));
  EXPECT_EQ(ops.size(), std::size(kNumberOps));
  EXPECT_EQ(to_nccl(DType::kBFloat16), ncclBfloat16);
  EXPECT_EQ(to_nccl(ReduceOp::kAverage), ncclAvg);
  EXPECT_THROW(to_nccl(static_cast<DType>(100)), UsageError);
  EXPECT_THROW(to_nccl(static_cast<ReduceOp>(100)), UsageError);
}

TEST(NcclHandles, AFailureOfThePeersOrTheNetworkIsALostPeer) {
  const auto code = [](ncclResult_t result) { return nccl_error(result, nullptr, "it").code; };
  EXPECT_EQ(code(ncclRemoteError), ErrorCode::kPeerLost);
  EXPECT_EQ(code(ncclSystemError), ErrorCode::kPeerLost);
  EXPECT_EQ(code(ncclInProgress), ErrorCode::kTimeout);
  EXPECT_EQ(code(ncclUnhandledCudaError), ErrorCode::kInternal);
  EXPECT_EQ(code(ncclInvalidUsage), ErrorCode::kInternal);
}

TEST(NcclHandles, ErrorsHaveNcclsReasonAndTheCall) {
  const std::string what = nccl_error(ncclInternalError, nullptr, "an all-reduce").what;
  EXPECT_THAT(what, HasSubstr("an all-reduce"));
  EXPECT_THAT(what, HasSubstr(nccl().ncclGetErrorString(ncclInternalError)));
  EXPECT_THROW(require_nccl(ncclInternalError, nullptr, "it"), KoloError);
  EXPECT_NO_THROW(require_nccl(ncclSuccess, nullptr, "it"));
}

TEST(NcclHandles, TheLibraryIsOneThatThisBuildIsFor) {
  EXPECT_EQ(checked_nccl_version() / 10000, NCCL_MAJOR);
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21903), "2.19.3");
}

}  // namespace
}  // namespace kolo::test
