#include "topology/link_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "topology/node_costs.h"

namespace kolo {
namespace {

constexpr double kMiB = 1 << 20;

/// Makes times as on a shared machine, with a little jitter and occasional interruptions.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}
  double operator()(double us) {
    const bool interrupted = std::uniform_real_distribution<>(0, 1)(random_) < 0.2;
    const double jitter = std::uniform_real_distribution<>(0, 0.04)(random_);
    const double pause = interrupted ? std::exponential_distribution<>(0.01)(random_) : 0;
    return us * (1 + jitter) + pause;
  }

 private:
  std::mt19937_64 random_;
};

MemorySamples memory_samples(const MemoryCost& truth, int ranks_of_node, Noise noise) {
  MemorySamples samples{.gathers_in_a_row = 8, .ranks = ranks_of_node};
  const double trip_us = truth.latency_us;
  for (int i = 0; i < 30; ++i) samples.trips_us.push_back(noise(truth.latency_us));
  for (const double working_set : {1 * kMiB, 8 * kMiB, 32 * kMiB, 64 * kMiB}) {
    const NodeMemory memory(truth, working_set);
    for (int i = 0; i < 12; ++i) {
      const double bytes = 2 * kMiB;
      samples.own_passes.push_back({working_set, bytes, noise(2 * trip_us + memory.own_us(bytes))});
    }
  }
  const NodeMemory cache(truth, 0);
  const double ranks = samples.ranks, bytes = 64 * 1024;
  for (int i = 0; i < 12; ++i) {
    const double gather_us =
        trip_us + cache.own_us(ranks * 4 * bytes) + cache.shared_us(ranks * (ranks - 1) * bytes);
    samples.gathers.push_back({bytes, noise(8 * gather_us + trip_us)});
    samples.slots.push_back({bytes, noise(4 * trip_us + cache.own_us(ranks * 2 * bytes) +
                                          (ranks - 1) * bytes / truth.slot_bytes_per_us)});
    const double handed = (ranks - 1) * bytes;
    samples.packed.push_back({bytes, noise(3 * trip_us + handed / truth.packed_bytes_per_us)});
    samples.streamed.push_back({bytes, noise(3 * trip_us + handed / truth.streamed_bytes_per_us)});
  }
  return samples;
}

/// Returns a stream of `count` messages of 64 KiB over a link with a token bucket. The line rate is
/// 20 times the rate after the bucket is empty.
NetworkSamples::Stream stream_over(const NetworkCost& truth, int count, Noise& noise) {
  NetworkSamples::Stream stream{.node = 1};
  for (int i = 1; i <= count; ++i) {
    const double bytes = i * 64.0 * 1024;
    const double line_us = bytes / (20 * truth.bytes_per_us);
    const double shaped_us = (bytes - truth.burst_bytes) / truth.bytes_per_us;
    const double us = truth.latency_us + std::max(truth.burst_bytes > 0 ? line_us : 0, shaped_us);
    const double before_us = stream.arrivals.empty() ? 0 : stream.arrivals.back().us;
    stream.arrivals.push_back({bytes, std::max(before_us, us + noise(1))});
  }
  return stream;
}

NetworkSamples network_samples(const NetworkCost& truth, Noise noise) {
  NetworkSamples samples{
      .round_trips_us = {}, .bursts_us = {}, .burst_messages = 17, .streams = {}};
  for (int i = 0; i < 20; ++i) {
    const double round_trip_us = 2 * (truth.latency_us + 2 * truth.message_us);
    samples.round_trips_us.push_back(noise(round_trip_us));
    samples.bursts_us.push_back(noise(round_trip_us + 16 * truth.message_us));
  }
  samples.streams.push_back(stream_over(truth, 400, noise));
  return samples;
}

TEST(LinkFit, FindsTheCostsOfMemoryThroughNoise) {
  for (const double cache_rate : {110'000.0, 60'000.0}) {
    for (const int ranks : {2, 4, 32}) {
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", cache rate " << cache_rate);
        const MemoryCost truth{.latency_us = 0.4,
                               .cached_bytes_per_us = 110'000.0,
                               .bytes_per_us_8m = cache_rate,
                               .bytes_per_us_32m = 40'000.0,
                               .bytes_per_us = 20'000.0,
                               .shared_bytes_per_us = 9'000.0,
                               .slot_bytes_per_us = 7'000.0,
                               .packed_bytes_per_us = 4'000.0,
                               .streamed_bytes_per_us = 6'000.0};
        const MemoryCost fit = fit_memory(memory_samples(truth, ranks, Noise(seed)));
        EXPECT_NEAR(fit.latency_us / truth.latency_us, 1, 0.05);
        EXPECT_NEAR(fit.bytes_per_us / truth.bytes_per_us, 1, 0.05);
        EXPECT_NEAR(fit.cached_bytes_per_us / truth.cached_bytes_per_us, 1, 0.05);
        EXPECT_NEAR(fit.shared_bytes_per_us / truth.shared_bytes_per_us, 1, 0.05);
        EXPECT_NEAR(fit.slot_bytes_per_us / truth.slot_bytes_per_us, 1, 0.05);
        EXPECT_NEAR(fit.packed_bytes_per_us / truth.packed_bytes_per_us, 1, 0.05);
        EXPECT_NEAR(fit.streamed_bytes_per_us / truth.streamed_bytes_per_us, 1, 0.05);
        EXPECT_NEAR(fit.bytes_per_us_8m / truth.bytes_per_us_8m, 1, 0.05);
        EXPECT_NEAR(fit.bytes_per_us_32m / truth.bytes_per_us_32m, 1, 0.05);
      }
    }
  }
}

TEST(LinkFit, FindsTheCostsOfANetworkThroughNoise) {
  for (const NetworkCost& truth :
       {NetworkCost{.latency_us = 20, .bytes_per_us = 120, .message_us = 3},
        NetworkCost{.latency_us = 30, .bytes_per_us = 12, .message_us = 3, .burst_bytes = 1 << 18},
        NetworkCost{.latency_us = 1.5, .bytes_per_us = 1'200, .message_us = 0.3}}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      const NetworkCost fit = fit_network(network_samples(truth, Noise(seed)));
      const double one_way_us = truth.latency_us + 2 * truth.message_us;
      EXPECT_NEAR((fit.latency_us + 2 * fit.message_us) / one_way_us, 1, 0.05);
      EXPECT_NEAR(fit.bytes_per_us / truth.bytes_per_us, 1, 0.05);
      // This is a difference of two noisy times.
      EXPECT_NEAR(fit.message_us, truth.message_us, 0.04 * (2 * one_way_us / 16 + 1));
      EXPECT_NEAR(fit.burst_bytes, truth.burst_bytes, 0.05 * truth.burst_bytes);
    }
  }
}

/// Adds pauses of some milliseconds to `of_100` of 100 samples, like programs on the same cores.
void disturb(std::vector<double>& times_us, unsigned of_100, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (double& us : times_us) {
    if (random() % 100 < of_100) us += std::uniform_real_distribution<>(1000, 5000)(random);
  }
}

TEST(LinkFit, SamplesOfAnIdleMachineAgree) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MemorySamples memory = memory_samples({}, 2, Noise(seed));
    EXPECT_FALSE(disagreement(memory));
    disturb(memory.trips_us, 10, seed);
    EXPECT_FALSE(disagreement(memory))
        << "with the noise, less than half of the samples are disturbed";
    NetworkSamples network = network_samples({}, Noise(seed));
    EXPECT_FALSE(disagreement(network));
    disturb(network.round_trips_us, 10, seed);
    EXPECT_FALSE(disagreement(network));
  }
  EXPECT_FALSE(disagreement(MemorySamples{}));
  EXPECT_FALSE(disagreement(MemorySamples{.trips_us = {1, 1000}})) << "two say nothing";
  EXPECT_FALSE(disagreement(NetworkSamples{}));
}

TEST(LinkFit, SamplesOfABusyMachineDisagree) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MemorySamples memory = memory_samples({}, 2, Noise(seed));
    disturb(memory.trips_us, 75, seed);
    const auto trips = disagreement(memory);
    ASSERT_TRUE(trips);
    EXPECT_EQ(trips->what, "trips");
    EXPECT_GT(trips->median_us, kMostSpread * trips->shortest_us);

    MemorySamples passes = memory_samples({}, 2, Noise(seed));
    for (std::size_t i = 0; i < passes.own_passes.size(); i += 4) {
      for (std::size_t k = i; k < i + 3; ++k) passes.own_passes[k].us += 5000;
    }
    ASSERT_TRUE(disagreement(passes));
    EXPECT_EQ(disagreement(passes)->what, "passes over memory");

    NetworkSamples network = network_samples({}, Noise(seed));
    disturb(network.bursts_us, 75, seed);
    ASSERT_TRUE(disagreement(network));
    EXPECT_EQ(disagreement(network)->what, "bursts of messages");
  }
}

// A single pass over a large set was interrupted.
TEST(LinkFit, ASecondMeasurementConfirmsRatesUnlessOneWasDisturbed) {
  LinkCosts idle;
  const LinkCosts defaults;
  const auto with = [&](double network, double memory) {
    LinkCosts costs;
    costs.network.bytes_per_us *= network;
    costs.memory.bytes_per_us *= memory;
    return costs;
  };
  EXPECT_TRUE(confirms(idle, with(1.2, 0.8)));
  EXPECT_FALSE(confirms(idle, with(0.5, 1))) << "a stream shared the link";
  EXPECT_FALSE(confirms(with(1, 0.5), idle)) << "a program shared the memory";
  for (const auto& [a, b] : {std::pair(with(0.5, 1), with(1, 0.5)), {with(0.5, 0.5), idle}}) {
    for (const LinkCosts& best : {less_disturbed(a, b), less_disturbed(b, a)}) {
      EXPECT_EQ(best.network.bytes_per_us, defaults.network.bytes_per_us);
      EXPECT_EQ(best.memory.bytes_per_us, defaults.memory.bytes_per_us);
    }
  }
}

TEST(LinkFit, ASingleSampleOfASetDoesNotCountBesideOthers) {
  MemorySamples memory{.trips_us = {0}};
  for (int i = 0; i < 3; ++i) memory.own_passes.push_back({kMiB, 1000, 10});
  memory.own_passes.push_back({32 * kMiB, 1000, 5000});
  EXPECT_EQ(fit_memory(memory).bytes_per_us_32m, 100);
  memory.own_passes = {{kMiB, 1000, 10}};
  EXPECT_EQ(fit_memory(memory).cached_bytes_per_us, 100) << "there are no others";
}

TEST(LinkFit, ANodeIsAsFastAsTheFastestStreamOverItsLink) {
  Noise noise(1);
  const auto samples = [&](std::initializer_list<std::pair<int, double>> rates) {
    NetworkSamples result;
    for (const auto& [node, rate] : rates) {
      result.streams.push_back(
          stream_over({.latency_us = 20, .bytes_per_us = rate, .message_us = 1}, 50, noise));
      result.streams.back().node = node;
    }
    return result;
  };
  // Links have rates of 120, 12, 120 and 60. Each pair reaches the rate of the slower link.
  const std::vector<NetworkSamples> by_node = {
      samples({{1, 12}, {2, 120}, {3, 60}}), samples({{3, 12}, {2, 12}}), samples({{3, 60}}), {}};
  std::vector<MeasuredCosts> measured;
  for (int node = 0; node < 4; ++node) {
    const NetworkSamples& each = by_node[static_cast<std::size_t>(node)];
    measured.push_back({.memory = {}, .network = {}, .node_rates = fit_node_rates(each, node, 4)});
  }
  const LinkCosts costs = combine_costs(measured, ProcessGrid::with_node_sizes({1, 1, 1, 1}));
  ASSERT_EQ(costs.node_rates.size(), 4u);
  const std::vector<double> truth = {120, 12, 120, 60};
  for (std::size_t node = 0; node < 4; ++node) {
    EXPECT_NEAR(costs.node_rates[node] / truth[node], 1, 0.05);
  }
  // Links that differ only by noise count as equal.
  measured = {{.memory = {}, .network = {}, .node_rates = {118, 110}}, {}};
  EXPECT_TRUE(combine_costs(measured, ProcessGrid::with_node_sizes({1, 1})).node_rates.empty());
}

/// Changes the times of a stream as if the receiver lost its core from `begin` to `end`, as shares
/// of the whole. Data that waited is received at `end`. All later data is delayed by the time for
/// which the link's token bucket does not compensate.
void pause(NetworkSamples::Stream& stream, const NetworkCost& truth, double begin, double end) {
  const double all_us = stream.arrivals.back().us, begin_us = begin * all_us, end_us = end * all_us;
  const double late_us = std::max(0.0, end_us - begin_us - truth.burst_bytes / truth.bytes_per_us);
  for (auto& arrival : stream.arrivals) {
    if (arrival.us > begin_us) arrival.us = std::max(arrival.us + late_us, end_us);
  }
}

// A burst of a rate-limited link looks like a fast link if the stream ends with it.
TEST(LinkFit, AStreamThatWasCutShortMakesNoNodeFaster) {
  const NetworkCost truth{.latency_us = 20, .bytes_per_us = 118, .burst_bytes = 1 << 18};
  Noise noise(7);
  NetworkSamples::Stream whole = stream_over(truth, 55, noise);
  whole.node = 1;
  NetworkSamples::Stream cut{.node = 1};
  for (int i = 1; i <= 8; ++i) {
    cut.arrivals.push_back({.bytes = 32768.0 * i, .us = 120.0 * i});
  }
  const NetworkSamples samples{.round_trips_us = {52}, .bursts_us = {}, .streams = {whole, cut}};
  EXPECT_NEAR(fit_node_rates(samples, 0, 2)[1], 118, 4);
}

// A receiver that paused reads the waiting data twice as fast as the link delivers it, which is
// most of the stream.
TEST(LinkFit, AStreamThatMostlyPausedMakesNoLinkFaster) {
  const NetworkCost truth{.latency_us = 20, .bytes_per_us = 118, .burst_bytes = 1 << 18};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const double begin : {0.05, 0.15, 0.25, 0.35}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", a pause from " << begin);
      Noise noise(seed);
      NetworkSamples::Stream stream = stream_over(truth, 55, noise);
      const double all_us = stream.arrivals.back().us;
      for (auto& arrival : stream.arrivals) {
        const double taken_us = all_us * (begin + 0.5) + (arrival.us - all_us * begin) / 2;
        if (arrival.us > begin * all_us) arrival.us = std::max(arrival.us, taken_us);
      }
      const NetworkCost fit =
          fit_network({.round_trips_us = {52}, .bursts_us = {}, .streams = {stream}});
      EXPECT_LE(fit.bytes_per_us, 1.25 * truth.bytes_per_us);
    }
  }
}

TEST(LinkFit, APauseInAStreamChangesNeitherRateNorBurst) {
  // The stream takes about 28 ms.
  for (const NetworkCost& truth :
       {NetworkCost{.latency_us = 20, .bytes_per_us = 118, .burst_bytes = 1 << 18},
        NetworkCost{.latency_us = 20, .bytes_per_us = 118}}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      for (const double begin : {0.1, 0.25, 0.4, 0.5, 0.7, 0.9}) {
        for (const double length : {0.03, 0.1, 0.3}) {
          SCOPED_TRACE(testing::Message() << "seed " << seed << ", a pause of " << length
                                          << " from " << begin << ", " << truth.burst_bytes);
          Noise noise(seed);
          NetworkSamples::Stream stream = stream_over(truth, 55, noise);
          pause(stream, truth, begin, begin + length);
          const NetworkCost fit =
              fit_network({.round_trips_us = {52}, .bursts_us = {}, .streams = {stream}});
          EXPECT_NEAR(fit.bytes_per_us / truth.bytes_per_us, 1, 0.03);
          EXPECT_NEAR(fit.burst_bytes, truth.burst_bytes, 0.1 * truth.burst_bytes);
        }
      }
    }
  }
}

// Two of 40 streams between two hosts began with a pause of 0.9 ms.
TEST(LinkFit, AnEarlyPauseDoesNotHideABurst) {
  const NetworkCost shaped{.latency_us = 20, .bytes_per_us = 118, .burst_bytes = 300'000};
  const NetworkCost even{.latency_us = 20, .bytes_per_us = 118};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const NetworkCost& truth : {shaped, even}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << truth.burst_bytes);
      Noise noise(seed);
      NetworkSamples::Stream late = stream_over(truth, 55, noise);
      pause(late, truth, 0.012, 0.053);
      const auto fit = [&](const std::vector<NetworkSamples::Stream>& streams) {
        return fit_network({.round_trips_us = {52}, .bursts_us = {}, .streams = streams});
      };
      EXPECT_NEAR(fit({late}).burst_bytes, truth.burst_bytes, 0.2 * truth.burst_bytes);
      // The stream with the largest burst determines the result.
      const NetworkSamples::Stream saw_none = stream_over(even, 55, noise);
      EXPECT_EQ(fit({saw_none, late}).burst_bytes, fit({late}).burst_bytes);
    }
  }
}

// A pause makes most of a short stream slow, so the data before it looks like a burst.
TEST(LinkFit, AStreamThatWasCutShortHasNoBurst) {
  Noise noise(7);
  const NetworkSamples::Stream whole =
      stream_over({.latency_us = 20, .bytes_per_us = 118}, 55, noise);
  NetworkSamples::Stream cut{.node = 1};
  for (int i = 1; i <= 8; ++i) cut.arrivals.push_back({.bytes = 32768.0 * i, .us = 278.0 * i});
  cut.arrivals.push_back({.bytes = 9 * 32768.0, .us = 7000});
  const NetworkSamples samples{.round_trips_us = {52}, .bursts_us = {}, .streams = {whole, cut}};
  EXPECT_EQ(fit_network(samples).burst_bytes, 0);
}

TEST(LinkFit, NonsenseStaysUsable) {
  // The samples contradict each other: a larger working set seems faster, peers' cache lines seem
  // faster than own ones, and bursts and large messages take no time.
  MemorySamples memory{.trips_us = {0}, .ranks = 2};
  memory.own_passes = {{kMiB, 100, 10}, {64 * kMiB, 100, 1}};
  memory.gathers = {{100, 0.001}};
  const MemoryCost cost = fit_memory(memory);
  EXPECT_GT(cost.bytes_per_us, 0);
  EXPECT_GE(NodeMemory(cost, 64 * kMiB).own_us(1), NodeMemory(cost, kMiB).own_us(1));
  EXPECT_LE(cost.shared_bytes_per_us, cost.cached_bytes_per_us);
  EXPECT_GT(cost.bytes_per_us_32m, 0);

  NetworkSamples network{.round_trips_us = {10}, .bursts_us = {5}, .burst_messages = 4};
  network.streams = {{.node = 1, .arrivals = {{1000, 20}, {2000, 20}}}};
  const NetworkCost link = fit_network(network);
  EXPECT_EQ(link.message_us, 0);
  EXPECT_EQ(link.bytes_per_us, 100);
  EXPECT_EQ(link.burst_bytes, 0);
}

TEST(LinkFit, NoSamplesMeanTheDefaults) {
  LinkCosts defaults;
  defaults.memory.latency_us = 7;
  defaults.network.message_us = 8;
  EXPECT_EQ(fit_memory({}, defaults.memory).latency_us, 7);
  EXPECT_EQ(fit_network({}, defaults.network).message_us, 8);
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  EXPECT_EQ(to_string(combine_costs({{}, {}}, grid, defaults)), to_string(defaults));
}

TEST(LinkFit, TheSlowestNodeAndLinkCountButNotTheSlowestRank) {
  const auto node = [](double latency, double rate) {
    MemoryCost cost;
    cost.latency_us = latency;
    cost.bytes_per_us = rate;
    return MeasuredCosts{.memory = cost, .network = {}, .node_rates = {}};
  };
  std::vector<MeasuredCosts> by_rank = {node(1, 50), node(2, 40), node(90, 1),
                                        node(3, 30), node(3, 30), node(3, 30)};
  by_rank[0].network =
      NetworkCost{.latency_us = 5, .bytes_per_us = 100, .message_us = 1, .burst_bytes = 8};
  by_rank[3].network = NetworkCost{.latency_us = 4, .bytes_per_us = 80, .message_us = 2};
  const LinkCosts costs = combine_costs(by_rank, ProcessGrid::with_node_sizes({3, 3}));
  EXPECT_EQ(costs.memory.latency_us, 3);
  EXPECT_EQ(costs.memory.bytes_per_us, 30);
  EXPECT_EQ(costs.network.latency_us, 5);
  EXPECT_EQ(costs.network.bytes_per_us, 80);
  EXPECT_EQ(costs.network.message_us, 2);
  EXPECT_EQ(costs.network.burst_bytes, 8);
  EXPECT_EQ(costs.native_network.bytes_per_us, 80);
}

}  // namespace
}  // namespace kolo
