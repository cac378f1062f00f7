#include "comm/native/group_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "tests/support/device/seeded_host_device.h"

namespace kolo::test {
namespace {

TEST(GroupFactory, ADeviceWithoutALibraryOfCollectivesIsAConfigurationError) {
  SeededHostDevice device(1);
  try {
    introduce_groups(0, device);
    FAIL() << "connected ranks that compute in host memory";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kConfig);
    EXPECT_THAT(error.error().what, testing::HasSubstr("NCCL"));
  }
}

}  // namespace
}  // namespace kolo::test
