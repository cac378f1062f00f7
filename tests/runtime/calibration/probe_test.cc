#include "runtime/calibration/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "comm/transport/forwarding_transport.h"
#include "runtime/calibration/native_probe.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_device.h"
#include "tests/support/faulty_communicator.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/rank_harness.h"
#include "tests/support/virtual_network.h"
#include "topology/link_fit.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;

constexpr Duration kAll = milliseconds(100);

double ms(Duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

// The waiting frame owns buffer and completion, which the exception will unwind.
TEST(ProbeWait, LeavesNothingInFlightWhenAPeerIsLostOrSilent) {
  for (const bool is_lost : {true, false}) {
    InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}), {.arena_bytes = 4096});
    const auto transport = hub.transport(0), peer = hub.transport(1);
    std::vector<std::byte> buffer(8);
    Completion receive;
    transport->irecv(1, {.source = 1}, buffer, receive);
    if (is_lost) peer->shutdown(false);
    ProbeWait wait(*transport, milliseconds(1), /*yields_at_once=*/true, ProbeWait::Polls::kWait);
    try {
      wait.until([&] { return receive.state == Completion::State::kDone; }, [] { return 1; });
      FAIL() << "nothing was sent";
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, is_lost ? ErrorCode::kPeerLost : ErrorCode::kTimeout);
      EXPECT_EQ(e.error().peer, 1);
      EXPECT_EQ(receive.state, Completion::State::kIdle);
    }
  }
}

/// Times collectives of rank 0 that fail as planned. Returns the error; checks that the group is
/// aborted before memory is freed.
Error error_of_native(const test::FaultPlan& plan, bool hangs = false) {
  HostCommunicatorHub hub({0, 1});
  HostDevice device;
  const auto peer = hub.group(1, device);
  auto mine = hub.group(0, device);
  const std::size_t before = device.in_use();
  test::FaultyCommunicator group(std::move(mine), plan);
  Error found;
  try {
    time_native(device, group, milliseconds(20));
    ADD_FAILURE() << "was timed";
  } catch (const KoloError& error) {
    found = error.error();
  }
  EXPECT_EQ(peer->async_error().has_value(), !hangs) << "an abort ends the calls of peers";
  EXPECT_EQ(device.stuck()->load(), hangs);
  EXPECT_EQ(device.in_use(), before + (hangs ? 1 : 0));
  return found;
}

TEST(NativeProbe, AbortsAGroupWhoseCollectivesDoNotEnd) {
  const Error found = error_of_native({.freeze_at = 0});
  EXPECT_EQ(found.code, ErrorCode::kTimeout);
}

TEST(NativeProbe, LeaksMemoryIfTheAbortDoesNotEndEither) {
  const Error found = error_of_native({.freeze_at = 0, .abort_hangs = true}, /*hangs=*/true);
  EXPECT_EQ(found.code, ErrorCode::kTimeout);
}

TEST(NativeProbe, ReportsAFailureOfTheLibrary) {
  EXPECT_EQ(error_of_native({.fail_at = 0}).what, "a planned failure");
}

TEST(NativeProbe, TimesNoCallsThatTheLibraryRefuses) {
  EXPECT_EQ(error_of_native({.refuse_at = 0}).what, "a planned failure");
}

TEST(ProbeBudget, SharesWhatIsLeft) {
  ManualClock clock;
  ProbeBudget budget(clock, clock.now() + kAll);
  budget.begin(4);
  EXPECT_TRUE(budget.affords(24'999));
  EXPECT_FALSE(budget.affords(25'000));
  EXPECT_TRUE(budget.affords_in_all(99'999));
  EXPECT_FALSE(budget.affords_in_all(100'000));
  clock.advance(milliseconds(10));  // earlier than possible
  budget.begin(3);
  EXPECT_TRUE(budget.affords(29'999));
  EXPECT_FALSE(budget.affords(30'000));
  clock.advance(milliseconds(70));  // later than expected
  EXPECT_FALSE(budget.affords());
  budget.begin(2);
  EXPECT_TRUE(budget.affords(9'999));
  clock.advance(milliseconds(30));
  budget.begin(1);
  EXPECT_FALSE(budget.affords());
}

// The bound holds for parts of any length, each of which asks before every sample.
TEST(ProbeBudget, IsKeptUpToOneSampleOfEachPart) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    ManualClock clock;
    ProbeBudget budget(clock, clock.now() + kAll);
    Duration longest{};
    const int parts = 1 + static_cast<int>(random() % 10);
    for (int left = parts; left > 0; --left) {
      budget.begin(left);
      const std::uint64_t least_us = 1 + random() % 10'000;
      for (int sample = 0; sample == 0 || (sample < 50 && budget.affords()); ++sample) {
        const auto took = std::chrono::microseconds(least_us + random() % 1'000);
        longest = std::max<Duration>(longest, took);
        clock.advance(took);
      }
    }
    EXPECT_LE(ms(clock.now().time_since_epoch()), ms(kAll + parts * longest));
  }
}

/// Rank 0 of a node whose other ranks come at once. All use the memory of rank 0.
class CrowdTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::span<std::byte> memory(int) override { return below().memory(0); }
  void signal(int, std::uint32_t, std::uint64_t) override {}
  std::uint64_t signalled(int, std::uint32_t) const override {
    return std::numeric_limits<std::uint64_t>::max();
  }
};

// The smallest working set has less than an aligned unit for each rank to sum.
TEST(ProbeNode, TimesNoEmptyPassesOfManyRanks) {
  const TransportLimits limits{
      .arena_bytes = std::size_t{2} << 20, .flags_per_peer = 1U << 4, .counters = 1U << 4};
  InProcessHub hub(ProcessGrid::with_node_sizes({1}), limits);
  const auto transport = hub.transport(0);
  CrowdTransport crowd(*transport);
  const SteadyClock clock;
  const MemorySamples samples =
      probe_node(crowd, ProcessGrid::with_node_sizes({129}), {.transport = limits},
                 {.clock = clock, .end = clock.now() + std::chrono::hours(1)});
  EXPECT_FALSE(samples.own_passes.empty());
  for (const auto& pass : samples.own_passes) EXPECT_GT(pass.bytes, 0) << pass.working_set_bytes;
  LinkCosts costs;
  costs.memory = fit_memory(samples);
  EXPECT_NO_THROW(parse_link_costs(to_string(costs)));
}

/// The time that the ranks of nodes with these links took together, and their results.
struct Measured {
  Duration took{};
  std::vector<NetworkSamples> by_node;
};

Measured measure(const std::vector<test::VirtualLink>& links, std::uint64_t seed) {
  const int nodes = static_cast<int>(links.size());
  const ProcessGrid grid =
      ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(nodes), 1));
  test::VirtualNetwork network(links, seed);
  Measured measured{.took = {}, .by_node = std::vector<NetworkSamples>(links.size())};
  test::run_ranks(nodes, [&](const test::RankRun& run) {
    const auto transport = network.transport(run.rank());
    measured.by_node[static_cast<std::size_t>(run.rank())] = probe_network(
        *transport, grid, {.transport = {}}, {.clock = network, .end = TimePoint{} + kAll});
  });
  measured.took = network.now().time_since_epoch();
  return measured;
}

TEST(ProbeNetwork, EndsInTimeWhateverLinksDo) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto between = [&](double least, double most) {
      return std::uniform_real_distribution<>(least, most)(random);
    };
    std::vector<test::VirtualLink> links(2 + random() % 4);
    double slowest = 1e9, way_us = 0;
    for (test::VirtualLink& link : links) {
      link = {.bytes_per_us = 12 * std::exp2(between(0, 7)),  // 100 Mbit/s to 12 Gbit/s
              .burst_bytes = random() % 2 == 0 ? 0 : between(0, 512 << 10),
              .latency_us = between(1, 200)};
      slowest = std::min(slowest, link.bytes_per_us);
      way_us = std::max(way_us, 2 * link.latency_us);
    }
    // The last tail may begin just before a burst allowance ends, and take longer than predicted.
    // Its last message and the closing message each take one latency. Before, each rank meets three
    // others, with a message, an answer and a closing message each.
    const double tail_bytes = static_cast<double>(kStreamTailBytes);
    const double late_us = tail_bytes / slowest + (2 + 9) * way_us;
    EXPECT_LE(ms(measure(links, seed).took), ms(kAll) + late_us / 1e3);
  }
}

TEST(ProbeNetwork, FindsTheRateOfAShapedLinkInItsTime) {
  for (const auto& [rate, nodes] : {std::pair(12.0, std::size_t{4}), {120.0, 2}}) {
    SCOPED_TRACE(testing::Message() << rate << " bytes per us, " << nodes << " nodes");
    const Measured measured =
        measure(std::vector<test::VirtualLink>(
                    nodes, {.bytes_per_us = rate, .burst_bytes = 256 << 10, .latency_us = 20}),
                nodes);
    constexpr double kMeetingsUs = 9 * 40;  // three meetings with three messages each
    EXPECT_LE(ms(measured.took), ms(kAll) + kMeetingsUs / 1e3);
    const NetworkCost cost = fit_network(measured.by_node.front());
    EXPECT_NEAR(cost.bytes_per_us / rate, 1, 0.1);
    EXPECT_NEAR(cost.burst_bytes, 256 << 10, 0.2 * (256 << 10));
    EXPECT_EQ(measured.by_node.front().streams.size(), nodes == 2 ? 2 : nodes - 1);
  }
}

// The time begins when neighbours are ready. One neighbour has received 2 MB from another node, or
// bytes that take longer than the whole time.
TEST(ProbeNetwork, ALateNeighbourLeavesTimeForAll) {
  constexpr int kNodes = 3;
  for (const std::size_t bytes : {2'000'000u, 12'000'000u}) {
    SCOPED_TRACE(bytes);
    const std::vector<test::VirtualLink> links(kNodes, {.bytes_per_us = 100, .latency_us = 20});
    test::VirtualNetwork network(links, 1);
    const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1});
    test::run_ranks(kNodes, [&](const test::RankRun& run) {
      const auto transport = network.transport(run.rank());
      std::vector<std::byte> elsewhere(bytes);
      const Tag tag{.bucket = 1};
      Completion done;
      if (run.rank() == 2) transport->isend(1, tag, elsewhere, done);
      if (run.rank() == 1) transport->irecv(2, tag, elsewhere, done);
      while (done.state == Completion::State::kPending) transport->poll();
      const NetworkSamples samples = probe_network(*transport, grid, {.transport = {}},
                                                   {.clock = network, .end = TimePoint{} + kAll});
      EXPECT_GE(samples.round_trips_us.size(), run.rank() == 0 ? 50u : 0u);
      for (const NetworkSamples::Stream& stream : samples.streams) {
        EXPECT_GE(stream.arrivals.size(), run.rank() == 0 ? 50u : 0u) << "node " << stream.node;
      }
    });
  }
}

TEST(ProbeNetwork, IsTheSameForTheSameSeed) {
  const std::vector<test::VirtualLink> links(3, {.bytes_per_us = 50, .burst_bytes = 1 << 17});
  EXPECT_EQ(measure(links, 7).took, measure(links, 7).took);
}

}  // namespace
}  // namespace kolo
