#include "comm/device/cuda_error.h"

#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "comm/device/cuda_device.h"

namespace kolo::test {
namespace {

TEST(CudaError, SuccessIsSilent) { EXPECT_NO_THROW(require_cuda(cudaSuccess, "a call")); }

TEST(CudaError, NamesTheCallAndTheReason) {
  try {
    require_cuda(cudaErrorInvalidValue, "cudaSomething");
    FAIL() << "no error";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kInternal);
    const std::string text = error.what();
    for (const char* const part :
         {"cuda", "cudaSomething", "invalid argument", "cudaErrorInvalidValue"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(CudaError, OutOfMemoryIsAResource) {
  try {
    require_cuda(cudaErrorMemoryAllocation, "cudaMalloc");
    FAIL() << "no error";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kResources);
  }
}

TEST(CudaAvailability, IsAnAnswerOnEveryMachine) {
  const CudaAvailability found = find_cuda_devices();
  EXPECT_EQ(found.device_count == 0, !found.reason.empty());
}

}  // namespace
}  // namespace kolo::test
