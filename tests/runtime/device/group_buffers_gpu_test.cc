// Runs the tests of group_buffers_test.cc on a GPU whose memory the ranks of one process share.

#include <gtest/gtest.h>

#include "comm/device/cuda_device.h"
#include "tests/runtime/device/group_buffers.h"

namespace kolo {
namespace {

TEST(CudaGroups, HaveAllCollectives) {
  const CudaAvailability found = find_cuda_devices();
  if (found.device_count == 0) GTEST_SKIP() << "no CUDA device: " << found.reason;
  test::expect_group_collectives([](int) { return std::make_unique<CudaDevice>(0); }, 1);
}

}  // namespace
}  // namespace kolo
