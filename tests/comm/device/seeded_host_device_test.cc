#include "tests/support/device/host_device.h"

#include <set>

#include "tests/comm/device/host_device_tests.h"
#include "tests/conformance/device_conformance_tests.h"
#include "tests/support/seeded_scheduler.h"

namespace kolo::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Seeded, DeviceConformance,
                         testing::Values(seeded_case(1), seeded_case(2), seeded_case(3)),
                         device_case_name);
INSTANTIATE_TEST_SUITE_P(Seeded, HostDeviceFamily,
                         testing::Values(seeded_case(1), seeded_case(2), seeded_case(3)),
                         device_case_name);

/// Returns the order in which three operations of each of two streams ran, such as "aabbab".
std::string order_with(std::uint64_t seed) {
  SeededHostDevice device(seed);
  std::string order;
  const auto first = device.make_stream(), second = device.make_stream();
  for (int i = 0; i < 3; ++i) {
    as_host(*first).enqueue([&order] { return order += 'a', true; });
    as_host(*second).enqueue([&order] { return order += 'b', true; });
  }
  device.settle();
  return order;
}

TEST(SeededHostDevice, ASeedIsAnOrderAndAllOrdersHaveOne) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    orders.insert(order_with(seed));
    EXPECT_EQ(order_with(seed), order_with(seed)) << "seed " << seed;
  }
  EXPECT_EQ(orders.size(), 20u) << "ways to interleave three operations with three";
}

TEST(SeededHostDevice, AnOperationMayEnqueueAnother) {
  SeededHostDevice device(3);
  const auto stream = device.make_stream();
  int ran = 0;
  as_host(*stream).enqueue([&] {
    for (int i = 0; i < 100; ++i) as_host(*stream).enqueue([&ran] { return ++ran > 0; });
    return true;
  });
  device.settle();
  EXPECT_EQ(ran, 100);
}

enum class Consumer { kWaits, kForgetsToWait };

/// A producer fills new memory and a consumer on another stream reads it, beside a rank that polls.
/// Returns whether the consumer read the produced values.
bool consumes_what_was_produced(std::uint64_t seed, Consumer consumer) {
  SeededHostDevice device(seed);
  constexpr std::size_t kBytes = 64;
  const DeviceMemory source = device.allocate(kBytes, MemoryKind::kPinned);
  const DeviceMemory middle = device.allocate(kBytes, MemoryKind::kDevice);
  const DeviceMemory target = device.allocate(kBytes, MemoryKind::kPinned);
  std::memset(source.data(), 42, kBytes);
  const auto view = [](const DeviceMemory& memory) {
    return BufferView{memory.data(), memory.bytes(), DType::kUInt8, memory.kind()};
  };

  const auto producing = device.make_stream(), consuming = device.make_stream();
  const auto produced = device.make_event(), consumed = device.make_event();
  producing->copy(view(middle), view(source));
  producing->record(*produced);
  if (consumer == Consumer::kWaits) consuming->wait(*produced);
  consuming->copy(view(target), view(middle));
  consuming->record(*consumed);

  SeededScheduler scheduler(seed, {[&] { return device.step(); }});
  scheduler.run_until([&] { return consumed->done(); });
  const bool poisoned =
      std::all_of(target.data(), target.data() + kBytes, [](std::byte b) { return b == kPoison; });
  const bool right = std::memcmp(target.data(), source.data(), kBytes) == 0;
  EXPECT_NE(poisoned, right) << "seed " << seed;
  return right;
}

TEST(SeededHostDevice, AForgottenStreamWaitIsCaught) {
  int caught = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_TRUE(consumes_what_was_produced(seed, Consumer::kWaits)) << "seed " << seed;
    if (!consumes_what_was_produced(seed, Consumer::kForgetsToWait)) ++caught;
  }
  // Under about half of the seeds the consumer runs first. Never would be as wrong as always.
  EXPECT_GT(caught, 10);
  EXPECT_LT(caught, 90);
}

}  // namespace
}  // namespace kolo::test
