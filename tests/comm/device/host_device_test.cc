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
  for (const int size : {1, 2, 3, 4}) {
    cases.push_back({std::to_string(size) + "_ranks",
                     [=] { return std::make_unique<ThreadedGroupJob>(size); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Threads, DeviceCommunicatorConformance,
                         testing::ValuesIn(threaded_cases()), group_case_name);

TEST(HostDevice, StreamsRunBesideTheirCallerAndEachOther) {
  // Each stream proceeds only if the other one does, even while the caller only waits.
  std::atomic<int> turn{0};  // outlives the streams, which may read it once more
  HostDevice device;
  const auto first = device.make_stream(), second = device.make_stream();
  const auto met = device.make_event();
  const auto play = [&turn](int mine) {
    return [&turn, mine] {
      if (turn < 100 && turn % 2 == mine) ++turn;
      return turn == 100;
    };
  };
  as_host(*first).enqueue(play(0));
  as_host(*second).enqueue(play(1));
  second->record(*met);
  while (!met->done()) std::this_thread::yield();
  EXPECT_EQ(turn, 100);
}

TEST(HostDevice, ABlockedStreamEndsAtOnce) {
  HostDevice device;
  for (int i = 0; i < 50; ++i) {
    const auto stream = device.make_stream();
    as_host(*stream).enqueue([] { return false; });
  }
}

}  // namespace
}  // namespace kolo::test
