#include "comm/transport/routed_transport.h"

#include <gtest/gtest.h>

#include "comm/transport/in_process_transport.h"
#include "topology/process_grid.h"

namespace kolo::test {
namespace {

/// A network that says what memory it takes and moves nothing.
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
  void shutdown(bool) override {}
  TrafficCounters traffic(int) const override { return {}; }

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

}  // namespace
}  // namespace kolo::test
