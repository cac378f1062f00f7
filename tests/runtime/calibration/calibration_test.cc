#include "runtime/calibration/calibration.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "runtime/calibration/calibration_file.h"
#include "runtime/calibration/probe.h"
#include "runtime/engine/connect.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_directory.h"

namespace kolo {
namespace {

constexpr TransportLimits kLimits{
    .arena_bytes = std::size_t{8} << 20, .flags_per_peer = 1U << 10, .counters = 1U << 10};

std::vector<RankPlace> exchange_places(BatchedExchange& exchange) {
  exchange.post("place", own_place());
  exchange.run();
  return places_of(exchange.texts("place"));
}

/// A job whose ranks are threads, and whose nodes exchange messages through queues.
struct Job {
  explicit Job(ProcessGrid grid)
      : hub(std::move(grid), kLimits),
        rendezvous(make_memory_rendezvous(hub.grid().world_size(), std::chrono::seconds(60))) {}

  std::vector<Calibration> calibrate_all(const Options& options) {
    std::vector<Calibration> results(rendezvous.size());
    test::run_ranks(hub.grid().world_size(), [&](const test::RankRun& run) {
      const auto rank = static_cast<std::size_t>(run.rank());
      const auto transport = hub.transport(run.rank());
      BatchedExchange exchange(*rendezvous[rank]);
      const std::vector<RankPlace> places = exchange_places(exchange);
      Calibrator calibrator(run.rank(), hub.grid(), places, options);
      calibrator.post(exchange);
      exchange.run();
      if (calibrator.measure(exchange, *transport, kLimits)) exchange.run();
      results[rank] = calibrator.finish(exchange);
      for (int peer : hub.grid().ranks_of_node(hub.grid().node(run.rank()))) {
        for (std::uint32_t flag = 0; flag < kLimits.flags_per_peer - kProbeFlags; ++flag) {
          EXPECT_EQ(transport->signalled(peer, flag), 0u);
        }
      }
      rendezvous[rank]->all_gather("");
      transport->shutdown(/*orderly=*/true);
    });
    return results;
  }

  InProcessHub hub;
  std::vector<std::unique_ptr<Rendezvous>> rendezvous;
};

TEST(Calibration, AllRanksHoldWhatRank0Decided) {
  for (const std::vector<int>& sizes :
       std::vector<std::vector<int>>{{1}, {2}, {4}, {1, 1}, {2, 1}, {1, 2, 1}}) {
    Job job(ProcessGrid::with_node_sizes(sizes));
    const auto results = job.calibrate_all({.calibration_file = {}});
    const LinkCosts& costs = results.front().costs;
    for (const Calibration& each : results) {
      EXPECT_EQ(to_string(each.costs), to_string(costs));
      EXPECT_EQ(each.source, results.front().source);
    }
    if (job.hub.grid().world_size() == 1) {
      EXPECT_EQ(results.front().source, "defaults");
      continue;
    }
    EXPECT_THAT(results.front().source, testing::StartsWith("measured in "));
    if (results.front().source.find("samples disagree") == std::string::npos) {
      EXPECT_NE(costs.memory.bytes_per_us, LinkCosts{}.memory.bytes_per_us);
      EXPECT_EQ(costs.network.latency_us != LinkCosts{}.network.latency_us, sizes.size() > 1);
    }
    // The text parses again, so every number is usable.
    EXPECT_EQ(to_string(parse_link_costs(to_string(costs))), to_string(costs));
  }
}

TEST(Calibration, TakesTheDefaultsIfItIsOff) {
  Job job(ProcessGrid::with_node_sizes({2, 1}));
  for (const Calibration& each :
       job.calibrate_all({.link_costs = "network_latency_us=7", .calibrate = "off"})) {
    EXPECT_EQ(each.source, "defaults");
    EXPECT_EQ(to_string(each.costs), to_string(parse_link_costs("network_latency_us=7")));
  }
}

TEST(Calibration, WhatTheUserNamesCountsMore) {
  Job job(ProcessGrid::with_node_sizes({1, 1}));
  for (const Calibration& each :
       job.calibrate_all({.link_costs = "network_latency_us=777", .calibration_file = {}})) {
    EXPECT_EQ(each.costs.network.latency_us, 777);
  }
}

/// Returns the name under which the file stores a job with such nodes on this machine.
std::string shape_of(const std::vector<int>& sizes) {
  Job job(ProcessGrid::with_node_sizes(sizes));
  std::string shape;
  test::run_ranks(job.hub.grid().world_size(), [&](const test::RankRun& run) {
    BatchedExchange exchange(*job.rendezvous[static_cast<std::size_t>(run.rank())]);
    const auto places = exchange_places(exchange);
    if (run.rank() == 0) shape = job_shape(places, job.hub.grid());
  });
  return shape;
}

Calibration calibrate_job(const std::vector<int>& sizes, const Options& options) {
  return Job(ProcessGrid::with_node_sizes(sizes)).calibrate_all(options).back();
}

constexpr const char* kRemembered = "network_bytes_per_us=7";

/// Saves costs twice, as if two jobs in a row had measured them.
void remember(CalibrationFile file, std::chrono::system_clock::time_point now) {
  for (int job = 0; job < 2; ++job) file.remember_link_costs(kRemembered, now);
}

// Inside a node, costs do not affect bits, so each run may measure again.
TEST(Calibration, OnlyJobsAcrossNodesRememberUnasked) {
  const test::TemporaryDirectory cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{1, 1}, {2}}) {
    remember({calibration_path("auto"), shape_of(sizes)}, std::chrono::system_clock::now());
  }
  EXPECT_EQ(calibrate_job({1, 1}, {}).source, "read from " + calibration_path("auto"));
  EXPECT_THAT(calibrate_job({2}, {}).source, testing::StartsWith("measured in "));
}

class CalibrationInAFile : public testing::Test {
 protected:
  const test::TemporaryDirectory folder_;
  const std::string path_ = folder_.path() / "costs.json";
  const std::chrono::system_clock::time_point now_ = std::chrono::system_clock::now();
};

TEST_F(CalibrationInAFile, SavesMeasuringForJobsOfTheSameShape) {
  remember({path_, shape_of({2, 1})}, now_);
  const Calibration found = calibrate_job({2, 1}, {.calibration_file = path_});
  EXPECT_EQ(found.source, "read from " + path_);
  EXPECT_EQ(found.costs.network.bytes_per_us, 7);
  EXPECT_THAT(calibrate_job({1, 2}, {.calibration_file = path_}).source,
              testing::StartsWith("measured"));
}

TEST_F(CalibrationInAFile, IsNotForReproducibleJobs) {
  remember({path_, shape_of({1, 1})}, now_);
  const Calibration found =
      calibrate_job({1, 1}, {.reproducible = true, .calibration_file = path_});
  EXPECT_EQ(found.source, "defaults");
  EXPECT_EQ(to_string(found.costs), to_string(LinkCosts{}));
}

TEST_F(CalibrationInAFile, IsMeasuredAnewWhenItHasExpired) {
  remember({path_, shape_of({1, 1})}, now_ - kCostsExpire);
  EXPECT_THAT(calibrate_job({1, 1}, {.calibration_file = path_}).source,
              testing::StartsWith("measured in "));
}

// A busy machine may spoil any measurement here. A single measurement may be saved, but it is not
// used before a second one confirms it.
TEST_F(CalibrationInAFile, DoesNotCountBeforeASecondJobConfirmsIt) {
  for (int job = 0; job < 2; ++job) {
    EXPECT_THAT(calibrate_job({1, 1}, {.calibration_file = path_}).source,
                testing::StartsWith("measured in "));
  }
  CalibrationFile file(path_, shape_of({1, 1}));
  const auto confirmed = file.link_costs(std::chrono::system_clock::now());
  if (!confirmed) return;  // no two measurements agreed
  const Calibration third = calibrate_job({1, 1}, {.calibration_file = path_});
  EXPECT_EQ(third.source, "read from " + path_);
  EXPECT_EQ(to_string(third.costs), to_string(parse_link_costs(*confirmed)));
}

TEST_F(CalibrationInAFile, AllRanksTakeWhatWasTunedForTheirShape) {
  const Tuning tuning = {{.collective = "broadcast", .bytes = 4096, .algorithm = "ring"}};
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{2}, {2, 1}}) {
    CalibrationFile(path_, shape_of(sizes)).remember_tuning(tuning, now_);
    Job job(ProcessGrid::with_node_sizes(sizes));
    for (const Calibration& each : job.calibrate_all({.calibration_file = path_})) {
      EXPECT_EQ(to_text(each.tuning), to_text(tuning));
      EXPECT_EQ(each.shape, shape_of(sizes));
    }
  }
  EXPECT_TRUE(calibrate_job({3}, {.calibration_file = path_}).tuning.empty());
}

TEST_F(CalibrationInAFile, TuningIsNotForJobsWhoseUserSetsOrForbidsCosts) {
  CalibrationFile(path_, shape_of({2})).remember_tuning({{.bytes = 4}}, now_);
  EXPECT_EQ(calibrate_job({2}, {.calibration_file = path_}).tuning.size(), 1u);
  for (const Options& options : {Options{.link_costs = "step_us=1", .calibration_file = path_},
                                 Options{.calibrate = "off", .calibration_file = path_},
                                 Options{.reproducible = true, .calibration_file = path_},
                                 Options{.calibration_file = {}}}) {
    EXPECT_TRUE(calibrate_job({2}, options).tuning.empty());
  }
}

// Costs are remembered on several nodes only, tuned choices everywhere.
TEST(Calibration, ATunedNodeNeedsNoPath) {
  const test::TemporaryDirectory cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  CalibrationFile file(calibration_path("auto"), shape_of({2}));
  file.remember_tuning({{.bytes = 4}}, std::chrono::system_clock::now());
  EXPECT_EQ(calibrate_job({2}, {}).tuning.size(), 1u);
}

TEST(Calibration, NoTimeMeansOneSampleOfEachKind) {
  Job job(ProcessGrid::with_node_sizes({3, 1}));
  test::run_ranks(4, [&](const test::RankRun& run) {
    const auto transport = job.hub.transport(run.rank());
    const ProbeLimits limits{.transport = kLimits, .shares_cores = true};
    const SteadyClock clock;
    const ProbeTime none{.clock = clock, .end = clock.now() - std::chrono::milliseconds(100)};
    const MemorySamples memory = probe_node(*transport, job.hub.grid(), limits, none);
    const int local_size = job.hub.grid().local_size(run.rank());
    EXPECT_EQ(memory.trips_us.size(), 1u);
    EXPECT_EQ(memory.gathers.size(), local_size > 1 ? 1u : 0u);
    EXPECT_EQ(memory.slots.size(), local_size > 1 ? 1u : 0u);
    EXPECT_EQ(memory.packed.size(), local_size > 1 ? 1u : 0u);
    EXPECT_EQ(memory.streamed.size(), local_size > 1 ? 1u : 0u);
    EXPECT_EQ(memory.own_passes.size(), 1u);
    const NetworkSamples network = probe_network(*transport, job.hub.grid(), limits, none);
    const std::size_t asks = run.rank() == 0;
    EXPECT_EQ(network.round_trips_us.size(), asks);
    EXPECT_EQ(network.bursts_us.size(), asks);
    EXPECT_EQ(network.streams.size(), 2 * asks);
    job.rendezvous[static_cast<std::size_t>(run.rank())]->all_gather("");
    transport->shutdown(/*orderly=*/true);
  });
}

/// A clock that advances by a millisecond at each reading.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(++ticks_ * std::chrono::milliseconds(1)); }

 private:
  mutable int ticks_ = 0;
};

TEST(Calibration, AStepIsAPartOfAChain) {
  Job job(ProcessGrid::with_node_sizes({2}));
  const auto transport = job.hub.transport(0);
  EXPECT_EQ(probe_step_us(*transport, TickingClock()), 1000.0 / 256);
  const double step_us = probe_step_us(*transport, SteadyClock());
  EXPECT_GT(step_us, 0);
  EXPECT_TRUE(std::isfinite(step_us));
}

TEST(Calibration, AReadOfPrivateMemoryIsTimedWhereItIsAllowed) {
  const auto reads = probe_private_reads(SteadyClock());
  if (!reads) GTEST_SKIP() << "this system forbids it";
  EXPECT_GT(reads->call_us, 0);
  EXPECT_GE(reads->page_us, 0);
  EXPECT_EQ(probe_private_reads(TickingClock())->call_us, 1000.0);
}

TEST(Calibration, ALostPeerEndsItWithAnError) {
  Job job(ProcessGrid::with_node_sizes({2}));
  auto gone = job.hub.transport(1);
  const auto transport = job.hub.transport(0);
  gone.reset();
  const SteadyClock clock;
  EXPECT_THROW(probe_node(*transport, job.hub.grid(), {.transport = kLimits},
                          {.clock = clock, .end = clock.now()}),
               KoloError);
}

// Padding between gradients must be zero, so a measurement must leave zeros.
TEST(Calibration, LeavesTheArenaAsItWas) {
  constexpr int kRanks = 2;
  auto endpoints = make_memory_rendezvous(kRanks, std::chrono::seconds(60));
  test::run_ranks(kRanks, [&](const test::RankRun& run) {
    const auto rank = static_cast<std::size_t>(run.rank());
    const Connection connection =
        connect(*endpoints[rank], {.arena_bytes = std::size_t{64} << 20, .node_id = "a"});
    EXPECT_EQ(connection.limits.flags_per_peer, TransportLimits{}.flags_per_peer - kProbeFlags);
    EXPECT_EQ(connection.start_up_rounds, 3);  // places; knowledge of rank 0; measured costs
    const auto memory = connection.transport->memory(run.rank());
    EXPECT_TRUE(std::ranges::all_of(memory.first(std::size_t{32} << 20),
                                    [](std::byte byte) { return byte == std::byte{0}; }));
    endpoints[rank]->all_gather("");
    connection.transport->shutdown(/*orderly=*/true);
  });
}

}  // namespace
}  // namespace kolo
