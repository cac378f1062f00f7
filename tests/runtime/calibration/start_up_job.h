#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/connect.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_connector.h"
#include "tests/support/device/host_device.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"

namespace kolo::test {

inline constexpr std::chrono::seconds kLimit{60};

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
  HostConnections connections_;
  const std::string introduction_;
  std::atomic<int> connected_ = 0;
};

/// Returns the number of rounds at start. `nodes` has the node of each rank.
inline int rounds_of(const std::vector<std::string>& nodes, Options options) {
  const int ranks = static_cast<int>(nodes.size());
  auto endpoints = make_memory_rendezvous(ranks, kLimit);
  HostDevices devices(ranks);
  std::atomic<int> rounds = 0;
  std::atomic<double> timed_rate = 0;  // equal on all ranks
  run_ranks(ranks, [&](const RankRun& run) {
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

inline Options options_with(const std::string& device) {
  return {.calibration_file = "",
          .device = device,
          .arena_bytes = std::size_t{64} << 20,
          .connect_timeout = kLimit};
}

}  // namespace kolo::test
