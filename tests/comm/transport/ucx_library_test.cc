#include <gmock/gmock.h>

#include <span>

#include "comm/base/error.h"
#include "comm/transport/ucx_library.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(UcxLibrary, SaysWhatToInstallOrSetIfThereIsNone) {
  const Error error = test::thrown_error([] { UcxLibrary("/nowhere/libucp.so.0"); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, AllOf(HasSubstr("communication between nodes needs UCX: /nowhere"),
                                HasSubstr("install UCX 1."), HasSubstr("KOLO_UCX_LIBRARY")));
}

TEST(UcxLibrary, NamesTheFunctionThatAnotherLibraryLacks) {
  const Error error = test::thrown_error([] { UcxLibrary("libm.so.6"); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, AllOf(HasSubstr("undefined symbol: ucp_"), HasSubstr("install UCX")));
}

TEST(UcxLibrary, IsLoadedOnce) {
  const UcxLibrary& ucx = load_ucx({});
  EXPECT_EQ(&load_ucx({}), &ucx);
  EXPECT_EQ(&load_ucx("libucp.so.0"), &ucx);
  const Error error = test::thrown_error([] { load_ucx("/opt/libucp.so.0"); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, HasSubstr("ucx_library='/opt/libucp.so.0'"));
}

// Over TCP, messages work with or without a handle, so the search for a handle is tested directly.
TEST(UcxMemory, HasAHandleForWhatLiesInOneRegion) {
  const UcxLibrary& ucx = load_ucx({});
  const UcpContext context = make_ucp_context(ucx, 1, "", "");
  UcxMemory memory(ucx, context.get());
  std::vector<std::byte> bytes(1 << 20);
  const std::span<std::byte> all(bytes);
  EXPECT_EQ(memory.find(all), nullptr);

  memory.add(all.subspan(4096, 8192));
  memory.add(all.subspan(65536, 4096));
  const ucp_mem_h first = memory.find(all.subspan(4096, 8192));
  const ucp_mem_h second = memory.find(all.subspan(65536, 4096));
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(memory.find(all.subspan(5000, 100)), first);
  EXPECT_EQ(memory.find(all.subspan(12287, 1)), first);
  EXPECT_EQ(memory.find(all.subspan(4095, 2)), nullptr) << "begins before its region";
  EXPECT_EQ(memory.find(all.subspan(12000, 1000)), nullptr) << "ends behind its region";
  EXPECT_EQ(memory.find(all.subspan(20000, 10)), nullptr) << "lies between regions";

  memory.add(all.subspan(5000, 100));
  EXPECT_EQ(memory.find(all.subspan(5000, 100)), first) << "is there already";
  memory.clear();
  EXPECT_EQ(memory.find(all.subspan(5000, 100)), nullptr);
}

}  // namespace

}  // namespace kolo
