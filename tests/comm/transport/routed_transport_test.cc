#include "comm/transport/routed_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <thread>

#include "tests/support/allocations.h"
#include "tests/support/in_process_transport.h"
#include "topology/process_grid.h"

namespace kolo::test {
namespace {

/// A network that only reports which memory it supports. It moves no data.
class NetworkThatTakes final : public MessageTransport {
 public:
  explicit NetworkThatTakes(bool device_memory) : device_memory_(device_memory) {}

  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  bool takes_device_memory() const override { return device_memory_; }
  void isend(int, const Tag&, std::span<const std::byte>, Completion&) override {}
  void irecv(int, const Tag&, std::span<std::byte>, Completion&) override {}
  void abandon(const Tag&) override {}
  void send_control(int, std::span<const std::byte>) override {}
  bool receive_control(ControlFrame&) override { return false; }
  bool poll() override { return false; }
  bool arm() override { return true; }
  void disarm() override {}
  std::vector<int> wake_fds() const override { return {}; }
  std::optional<Error> failure() const override { return std::nullopt; }
  void say_goodbye() override {}
  void shutdown(bool) override {}
  TrafficCounters traffic(int) const override { return {}; }
  void expect_messages_in(std::span<std::byte> memory) override { expected.push_back(memory); }

  std::vector<std::span<std::byte>> expected = {};

 private:
  const bool device_memory_;
};

TEST(RoutedTransport, TakesTheMemoryThatItsNetworkTakes) {
  for (const bool takes : {false, true}) {
    InProcessHub hub(ProcessGrid::with_node_sizes({1}));
    const RoutedTransport routed(hub.transport(0), std::make_unique<NetworkThatTakes>(takes));
    EXPECT_EQ(routed.takes_device_memory(), takes);
  }
}

// Any thread commits, but only the driving thread calls the network.
TEST(RoutedTransport, TellsItsNetworkInAPollWhatIsCommitted) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  auto network = std::make_unique<NetworkThatTakes>(false);
  const auto& expected = network->expected;
  RoutedTransport routed(hub.transport(0), std::move(network));
  std::thread([&] { routed.commit(64, 4096, {}); }).join();
  EXPECT_TRUE(expected.empty());
  for (int poll = 0; poll < 2; ++poll) routed.poll();
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_EQ(expected[0].data(), routed.memory(0).data() + 64);
  EXPECT_EQ(expected[0].size(), 4096u);
}

// A rank that waits for other nodes sleeps many times in every step, so sleeping must not allocate.
TEST(RoutedTransport, SleepsWithoutAllocating) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  RoutedTransport routed(hub.transport(0), std::make_unique<NetworkThatTakes>(false));
  while (routed.poll()) {
  }
  const AllocationCounter allocations;
  int slept = 0;
  for (int i = 0; i < 6; ++i) {
    slept += routed.sleep(std::chrono::microseconds(1)) ? 1 : 0;
    routed.poll();
  }
  const std::size_t calls = allocations.calls();
  EXPECT_EQ(slept, 3) << "it looks once more before each";
  EXPECT_EQ(calls, 0u);
}

TEST(RoutedTransport, SleepsUntilItIsRung) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  RoutedTransport routed(hub.transport(0), std::make_unique<NetworkThatTakes>(false));
  while (routed.poll()) {
  }
  std::thread other([&] { routed.ring(0); });
  const auto limit = std::chrono::hours(1);  // longer than the test may take
  while (!routed.poll()) routed.sleep(limit);
  other.join();
}

}  // namespace
}  // namespace kolo::test
