#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "tests/support/device/host_device.h"

namespace kolo::test {
namespace {

/// Returns the text of the configuration error on opening the device; empty if it opens.
std::string refusal_of(const std::string& name) {
  try {
    open_device(name, 0);
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kConfig) << error.what();
    return error.what();
  }
  return "";
}

TEST(DeviceFactory, OtherNamesAreRefused) {
  for (const char* const name : {"", "gpu", "cud", "cudas", "cuda:", "cuda:x", "cuda:1x", "cuda:-1",
                                 "cuda: 1", "cuda:99999999999"}) {
    EXPECT_NE(refusal_of(name).find("name 'cuda' or 'cuda:INDEX'"), std::string::npos) << name;
  }
}

TEST(DeviceFactory, OpensADeviceOrSaysWhyNot) {
  const std::string available = cuda_availability();
  const std::string refusal = refusal_of("cuda");
  SCOPED_TRACE(available + " / " + refusal);
  if (available == "not built with CUDA") {
    EXPECT_NE(refusal.find("-DKOLO_WITH_CUDA=ON"), std::string::npos);
  } else if (const auto reason = available.find("no device: "); reason != std::string::npos) {
    EXPECT_NE(refusal.find(available.substr(reason + std::string("no device: ").size())),
              std::string::npos);
  } else {
    EXPECT_EQ(refusal, "");
    EXPECT_TRUE(open_device("cuda", 0)->describe().starts_with("cuda:0 "));
    EXPECT_NE(refusal_of("cuda:4096").find("devices"), std::string::npos);
  }
}

TEST(GroupFactory, ADeviceWithoutALibraryOfCollectivesIsAConfigurationError) {
  SeededHostDevice device(1);
  try {
    introduce_groups(0, device, "");
    FAIL() << "connected ranks that compute in host memory";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kConfig);
    EXPECT_THAT(error.error().what, testing::HasSubstr("NCCL"));
  }
}

}  // namespace
}  // namespace kolo::test
