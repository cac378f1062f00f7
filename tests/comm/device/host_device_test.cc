#include "tests/support/device/host_device.h"

#include "tests/comm/device/device_communicator_conformance.h"
#include "tests/comm/device/device_communicator_parts_conformance.h"
#include "tests/comm/device/host_device_tests.h"
#include "tests/comm/device/host_group_job.h"
#include "tests/conformance/device_conformance_tests.h"

namespace kolo::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, DeviceConformance, testing::Values(threads_case()),
                         device_case_name);
INSTANTIATE_TEST_SUITE_P(Host, HostDeviceFamily, testing::Values(threads_case()), device_case_name);

std::vector<GroupCase> threaded_cases() {
  std::vector<GroupCase> cases;
  for (const int size : {1, 2, 3}) {
    cases.push_back({std::to_string(size) + "_ranks",
                     [=] { return std::make_unique<ThreadedGroupJob>(size); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Threads, DeviceCommunicatorConformance,
                         testing::ValuesIn(threaded_cases()), group_case_name);

}  // namespace
}  // namespace kolo::test
