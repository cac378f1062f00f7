// Counts the rounds of exchange before the first operation: with and without a device, on one node
// and on several, over UCX on this machine's interfaces.

#include "runtime/engine/connect.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <thread>

#include "comm/native/network_factory.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_connector.h"
#include "tests/support/device/host_device.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

constexpr std::chrono::seconds kLimit{60};
constexpr int kMostRounds = 5;

/// Devices in host memory. Their ranks connect through the exchange.
class HostDevices {
 public:
  /// Rank `failing` fails to connect once the others have.
  explicit HostDevices(int ranks, int failing = -1)
      : ranks_(ranks),
        failing_(failing),
        world_(numbers(ranks)),
        introduction_("introduction of ") {}

  DeviceSource source() {
    return {
        .open = [](const std::string&, int) { return std::make_unique<HostDevice>(); },
        .introduce = [this](int rank, const Device&,
                            const std::string&) { return introduction_ + std::to_string(rank); },
        .connect =
            [this](std::span<const std::string> introductions, int rank, const ProcessGrid&,
                   Device& device, std::chrono::milliseconds) {
              for (int other = 0; other < ranks_; ++other) {
                EXPECT_EQ(introductions[static_cast<std::size_t>(other)],
                          introduction_ + std::to_string(other));
              }
              if (rank == failing_) {
                while (connected_ < ranks_ - 1) std::this_thread::yield();
                throw KoloError({.code = ErrorCode::kInternal, .what = "no connection"});
              }
              DeviceCommunicators groups{.node = nullptr,
                                         .world = world_.group(rank, device),
                                         .connector = connections_.connector(device)};
              ++connected_;
              return groups;
            }};
  }
  int connected() const { return connected_; }

 private:
  static std::vector<int> numbers(int count) {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  const int ranks_, failing_;
  HostCommunicatorHub world_;
  test::HostConnections connections_;
  const std::string introduction_;
  std::atomic<int> connected_ = 0;
};

/// Returns the number of rounds at start. `nodes` has the node of each rank.
int rounds_of(const std::vector<std::string>& nodes, Options options) {
  const int ranks = static_cast<int>(nodes.size());
  auto endpoints = make_memory_rendezvous(ranks, kLimit);
  HostDevices devices(ranks);
  std::atomic<int> rounds = 0;
  std::atomic<double> timed_rate = 0;  // equal on all ranks
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    const auto rank = static_cast<std::size_t>(run.rank());
    Options mine = options;
    mine.node_id = nodes[rank];
    const Connection connection = connect(*endpoints[rank], mine, devices.source());
    const int before = rounds.exchange(connection.start_up_rounds);
    EXPECT_TRUE(before == 0 || before == connection.start_up_rounds);
    EXPECT_EQ(connection.device_context.has_value(), mine.device != "cpu");
    if (connection.device_context) {
      EXPECT_EQ(devices.connected(), ranks) << "goes on before all are connected";
      EXPECT_EQ(connection.device_context->world->size(), ranks);
      const LinkCosts& costs = connection.calibration.costs;
      EXPECT_EQ(costs.native_timed, connection.grid.num_nodes() > 1 ? 1 : 0);
      EXPECT_GT(costs.native_network.bytes_per_us, 0);
      const double rate_before = timed_rate.exchange(costs.native_network.bytes_per_us);
      EXPECT_TRUE(rate_before == 0 || rate_before == costs.native_network.bytes_per_us);
    }
    endpoints[rank]->all_gather("");
    connection.transport->shutdown(/*orderly=*/true);
  });
  return rounds;
}

Options options_with(const std::string& device) {
  return {.calibration_file = "",
          .device = device,
          .arena_bytes = std::size_t{64} << 20,
          .connect_timeout = kLimit};
}

TEST(StartUp, OnOneNodeTakesThreeRoundsAlsoWithADevice) {
  for (const std::string device : {"cpu", "host"}) {
    EXPECT_EQ(rounds_of({"a", "a"}, options_with(device)), 3) << device;
  }
}

TEST(StartUp, OnSeveralNodesTakesFourRoundsAndOneToTimeADevice) {
  if (!network_uses_tcp()) GTEST_SKIP() << "this build has no network over TCP";
  if (test::kSanitized) GTEST_SKIP() << "sanitizers report what UCX does";
  for (const std::string device : {"cpu", "host"}) {
    for (const std::vector<std::string>& nodes :
         {std::vector<std::string>{"a", "b"}, {"a", "a", "b", "c"}}) {
      const int rounds = rounds_of(nodes, options_with(device));
      EXPECT_EQ(rounds, device == "cpu" ? 4 : 5) << device << " on " << nodes.size() << " ranks";
      EXPECT_LE(rounds, kMostRounds);
    }
  }
}

/// A rendezvous that loses its peers after a number of rounds.
class LosingRendezvous final : public Rendezvous {
 public:
  LosingRendezvous(Rendezvous& other, int rounds) : other_(other), rounds_left_(rounds) {}
  int rank() const override { return other_.rank(); }
  int size() const override { return other_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override {
    if (rounds_left_-- > 0) return other_.all_gather(mine);
    throw KoloError({.code = ErrorCode::kPeerLost, .what = "lost in the rendezvous"});
  }

 private:
  Rendezvous& other_;
  int rounds_left_;
};

// A collective before that would wait for the failed rank until its time limit.
TEST(StartUp, ARankWhoseDeviceDoesNotConnectIsNoticedBeforeTheFirstCollective) {
  if (!network_uses_tcp()) GTEST_SKIP() << "this build has no network over TCP";
  if (test::kSanitized) GTEST_SKIP() << "sanitizers report what UCX does";
  auto endpoints = make_memory_rendezvous(2, kLimit);
  HostDevices devices(2, /*failing=*/1);
  test::run_ranks(2, [&](const test::RankRun& run) {
    LosingRendezvous rendezvous(*endpoints[static_cast<std::size_t>(run.rank())], 3);
    Options options = options_with("host");
    options.node_id = run.rank() == 0 ? "a" : "b";
    try {
      connect(rendezvous, options, devices.source());
      ADD_FAILURE() << "did not fail";
    } catch (const KoloError& error) {
      const auto expected = run.rank() == 0 ? ErrorCode::kPeerLost : ErrorCode::kInternal;
      EXPECT_EQ(error.error().code, expected) << error.what();
    }
  });
}

TEST(StartUp, WithKnownCostsADeviceTakesTheRoundOfTheLinks) {
  Options options = options_with("cpu");
  options.calibrate = "off";
  EXPECT_EQ(rounds_of({"a", "a"}, options), 2);
  options.device = "host";
  EXPECT_EQ(rounds_of({"a", "a"}, options), 3);
}

}  // namespace
}  // namespace kolo
