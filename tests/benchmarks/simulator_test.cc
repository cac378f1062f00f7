#include "benchmarks/sim/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "benchmarks/sim/simulated_machine.h"
#include "comm/algorithms/all_reduce/stage.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

/// Returns the costs of memory with this rate for any rank's bytes.
MemoryCost memory_of_rate(double bytes_per_us) {
  return {.latency_us = 0.5,
          .cached_bytes_per_us = bytes_per_us,
          .bytes_per_us_8m = bytes_per_us,
          .bytes_per_us_32m = bytes_per_us,
          .bytes_per_us = bytes_per_us,
          .shared_bytes_per_us = bytes_per_us};
}

/// Returns costs in which kernels and messages take no processor time, so that only links matter.
MachineCosts only_links() {
  MachineCosts costs;
  costs.links.network = {.latency_us = 8, .bytes_per_us = 1024, .message_us = 0};
  costs.links.memory = memory_of_rate(1e15);
  costs.links.bucket_us = 0;
  costs.links.step_us = 0;
  return costs;
}

ProcessGrid nodes_of_one(int nodes) {
  return ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(nodes), 1));
}

SimulatorSchedules::Compile compiler(const ProcessGrid& grid, const BucketLayout& layout,
                                     const CompileOptions& options) {
  return [&grid, layout, options](int rank) {
    return test::compile_all_reduce(rank, layout, grid, options);
  };
}

/// Returns the time of an all-reduce simulated without symmetry. By default all ranks start at 0.
double all_reduce_us(const ProcessGrid& grid, const BucketLayout& layout,
                     const CompileOptions& compile, const MachineCosts& costs,
                     std::vector<double> start_us = {}) {
  const SimulatorSchedules schedules(grid, NodeSymmetry::kNone, compiler(grid, layout, compile));
  start_us.resize(static_cast<std::size_t>(grid.world_size()));
  const SimulatedBucket bucket{.schedules = &schedules, .start_us = start_us};
  return simulate(grid, {&bucket, 1}, {.costs = costs})[0];
}

/// Returns options for one chunk of any size.
CompileOptions in_one_chunk(std::string algorithm) {
  return {.algorithm = std::move(algorithm),
          .chunk_bytes = std::size_t{1} << 40,
          .network_window = 0,
          .device_chunk_bytes = std::size_t{1} << 40};
}

constexpr std::size_t kCount = 64 * 1024;
constexpr double kBytes = kCount * sizeof(float);

TEST(SimulatorForms, RingTakesTwoTimesNMinusOneHops) {
  for (int n : {2, 3, 4, 8}) {
    const std::size_t count = kCount / 24 * static_cast<std::size_t>(n) * 16;
    const double part = static_cast<double>(count) * sizeof(float) / n;
    EXPECT_NEAR(
        all_reduce_us(nodes_of_one(n), {.count = count}, in_one_chunk("ring"), only_links()),
        2 * (n - 1) * (8 + part / 1024), 1e-6)
        << n;
  }
}

TEST(SimulatorForms, DirectPassesAllPartsThroughEachLink) {
  for (int n : {2, 4, 8}) {
    EXPECT_NEAR(
        all_reduce_us(nodes_of_one(n), {.count = kCount}, in_one_chunk("direct"), only_links()),
        2 * (8 + (n - 1) * kBytes / n / 1024), 1e-6)
        << n;
  }
}

TEST(SimulatorForms, HalvingDoublingHalves) {
  for (int n : {2, 4, 16}) {
    double expected = 0;
    double part = kBytes;
    for (int distance = n / 2; distance >= 1; distance /= 2) {
      part /= 2;
      expected += 2 * (8 + part / 1024);
    }
    EXPECT_NEAR(all_reduce_us(nodes_of_one(n), {.count = kCount}, in_one_chunk("halving_doubling"),
                              only_links()),
                expected, 1e-6)
        << n;
  }
}

TEST(SimulatorForms, AMessageCostsBothProcessors) {
  MachineCosts costs = only_links();
  costs.links.network.message_us = 2;
  // Two ranks exchange halves twice.
  EXPECT_NEAR(all_reduce_us(nodes_of_one(2), {.count = kCount}, in_one_chunk("ring"), costs),
              2 * (2 + 8 + kBytes / 2 / 1024 + 2), 1e-6);
}

TEST(SimulatorForms, AStragglerDelaysByItsLateness) {
  for (const char* algorithm : {"ring", "direct", "halving_doubling"}) {
    const double punctual =
        all_reduce_us(nodes_of_one(2), {.count = kCount}, in_one_chunk(algorithm), only_links());
    const double late = all_reduce_us(nodes_of_one(2), {.count = kCount}, in_one_chunk(algorithm),
                                      only_links(), {0, 100'000});
    EXPECT_GE(late, 100'000 + punctual / 2 - 1e-6) << algorithm;
    EXPECT_LE(late, 100'000 + punctual + 1e-6) << algorithm;
    const double all_late = all_reduce_us(nodes_of_one(2), {.count = kCount},
                                          in_one_chunk(algorithm), only_links(), {4096, 4096});
    EXPECT_NEAR(all_late, 4096 + punctual, 1e-6) << algorithm;
  }
}

TEST(SimulatorForms, TwoBucketsShareALink) {
  const ProcessGrid grid = nodes_of_one(2);
  const SimulatorSchedules schedules(grid, NodeSymmetry::kNone,
                                     compiler(grid, {.count = kCount}, in_one_chunk("ring")));
  const std::vector<SimulatedBucket> buckets(
      2, {.schedules = &schedules, .start_us = std::vector<double>(2)});
  const std::vector<double> done = simulate(grid, buckets, {.costs = only_links()});
  // Each of two rounds has half the bytes. While the link passes one bucket's half, the other's
  // half is in flight, so the link never rests: first, second, first, second.
  const double half = kBytes / 2 / 1024;
  EXPECT_NEAR(done[0], 3 * half + 8, 1e-6);
  EXPECT_NEAR(done[1], 4 * half + 8, 1e-6);
}

TEST(SimulatorForms, RanksOfANodeShareItsLink) {
  // Two ranks on each of two nodes exchange halves with their counterparts. Each link passes all
  // bytes. While it passes one rank's bytes, the other rank's bytes are in flight.
  const double us = all_reduce_us(ProcessGrid::with_node_sizes({2, 2}), {.count = kCount},
                                  in_one_chunk("hierarchical:direct,ring"), only_links());
  const double flags = 3 * 0.5;  // contributions are written, sums are written, sums are read
  EXPECT_NEAR(us, kBytes / 1024 + 8 + flags, 1e-6);
}

TEST(SimulatorForms, AShapedLinkLetsABurstPass) {
  MachineCosts costs = only_links();
  const auto us = [&](double burst_bytes) {
    costs.links.network.burst_bytes = burst_bytes;
    return all_reduce_us(nodes_of_one(2), {.count = kCount}, in_one_chunk("ring"), costs);
  };
  // Each link passes one half, and then the other. It saves up again while the first is in flight.
  EXPECT_NEAR(us(kBytes), 2 * 8, 1e-6);
  EXPECT_NEAR(us(kBytes / 4), 8 + 3 * kBytes / 4 / 1024, 1e-6);
}

TEST(SimulatorForms, KernelsShareTheMemoryOfTheirNode) {
  MachineCosts costs = only_links();
  costs.links.memory = memory_of_rate(1024);
  for (int n : {1, 2, 4}) {
    const double us = all_reduce_us(ProcessGrid::with_node_sizes({n}), {.count = kCount},
                                    in_one_chunk("direct"), costs);
    // Each rank reads its part of all buckets and writes it back: together, all bytes of each
    // bucket.
    const double flags = 2 * 0.5;
    EXPECT_NEAR(us, n == 1 ? 0 : flags + 2 * n * kBytes / 1024, 1e-6) << n;
  }
}

TEST(SimulatorForms, MessagesInsideANodeAreCopiedTwice) {
  MachineCosts costs = only_links();
  costs.links.memory = memory_of_rate(1024);
  const double us = all_reduce_us(ProcessGrid::with_node_sizes({2}), {.count = kCount},
                                  in_one_chunk("ring"), costs);
  // Both halves pass twice; each copy reads and writes. Sums read two buffers and write one.
  EXPECT_NEAR(us, 2 * (4 * kBytes / 1024 + 0.5) + 3 * kBytes / 1024, 1e-6);
}

TEST(SimulatorForms, ABucketAndItsStepsCostTheirProcessor) {
  MachineCosts costs = only_links();
  const auto us = [&] {
    return all_reduce_us(ProcessGrid::with_node_sizes({2}), {.count = kCount},
                         in_one_chunk("direct"), costs);
  };
  const double before = us();
  costs.links.bucket_us = 16;
  costs.links.step_us = 1;
  // A flag raised, one awaited, the sum, a flag raised, one awaited.
  EXPECT_NEAR(us() - before, 16 + 5, 1e-6);
}

TEST(SimulatorForms, ASlowRankIsSlowInProportion) {
  MachineCosts costs = only_links();
  costs.links.memory = memory_of_rate(1024);
  const ProcessGrid grid = nodes_of_one(2);
  const BucketLayout layout{.count = kCount};
  const SimulatorSchedules schedules(grid, NodeSymmetry::kNone,
                                     compiler(grid, layout, in_one_chunk("ring")));
  const SimulatedBucket bucket{.schedules = &schedules, .start_us = {0, 0}};
  const auto us = [&](double slowness) {
    return simulate(grid, {&bucket, 1}, {.costs = costs, .slowness = {slowness, 1}})[0];
  };
  // Each rank adds one half, from two sources to a target.
  EXPECT_NEAR(us(3) - us(1), 2 * (3 * kBytes / 2 / 1024), 1e-6);
}

TEST(SimulatorForms, NativeStepsMeet) {
  MachineCosts costs = only_links();
  costs.links.device = {.latency_us = 4, .bytes_per_us = 2048};
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4});
  const BucketLayout layout{.count = kCount, .memory = MemoryKind::kDevice};
  const double expected =
      native_us(grid, costs.links, static_cast<double>(layout.count * sizeof(float)));
  EXPECT_NEAR(all_reduce_us(grid, layout, in_one_chunk("native"), costs), expected, 1e-6);
  EXPECT_NEAR(all_reduce_us(grid, layout, in_one_chunk("native"), costs, {0, 0, 512, 0}),
              512 + expected, 1e-6);
}

TEST(SharedCapacityTest, JobsSlowEachOtherDownOnlyBeyondTheCapacity) {
  SharedCapacity shared(1, 1);
  shared.add(0, 2, 7);
  shared.add(1, 2, 8);
  EXPECT_DOUBLE_EQ(shared.next_end(), 3);
  EXPECT_EQ(shared.take(3), 7);
  EXPECT_DOUBLE_EQ(shared.next_end(), 4);
  EXPECT_EQ(shared.take(4), 8);
  EXPECT_TRUE(shared.empty());

  SharedCapacity wide(1, 2);
  wide.add(0, 2, 7);
  wide.add(1, 2, 8);
  EXPECT_DOUBLE_EQ(wide.next_end(), 2);
}

// Every schedule ends. It takes at least the time of its bytes on the links, and at most the time
// of all messages, flags and kernels one after the other.
TEST(Simulator, EveryAlgorithmEndsWithinItsBounds) {
  const MachineCosts costs;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      for (const char* algorithm :
           {"flat", "ring", "direct", "halving_doubling", "hierarchical:direct,ring",
            "hierarchical:direct,direct", "hierarchical:direct,halving_doubling",
            "hierarchical:ring,ring", "native", "hierarchical:native,ring",
            "hierarchical:native,direct", "hierarchical:native,halving_doubling"}) {
        const bool on_device = std::string(algorithm).find("native") != std::string::npos;
        BucketLayout layout{.count = 20'000, .placement = Placement::kStaged};
        if (on_device) {
          layout.memory = MemoryKind::kDevice;
          layout.count = 64 * device_padding(grid, layout.dtype);
        }
        const CompileOptions options{
            .algorithm = algorithm, .chunk_bytes = 32 << 10, .device_chunk_bytes = 32 << 10};
        const double us = all_reduce_us(grid, layout, options, costs);

        std::vector<double> out(static_cast<std::size_t>(grid.num_nodes())), in(out);
        double all_after_another = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          for (const Step& step : test::compile_all_reduce(rank, layout, grid, options).steps) {
            const double bytes =
                sizeof(float) *
                static_cast<double>(step.kind == StepKind::kSend
                                        ? step.sources[0].count
                                        : (step.sources.size() + 1) * step.target.count);
            if (step.kind == StepKind::kSend && !grid.same_node(rank, step.peer)) {
              out[static_cast<std::size_t>(grid.node(rank))] += bytes;
              in[static_cast<std::size_t>(grid.node(step.peer))] += bytes;
            }
            // Nothing takes more than 50 us, or is slower than the network.
            all_after_another += 50 + 2 * bytes / costs.links.network.bytes_per_us;
          }
        }
        const double busiest = std::max(*std::max_element(out.begin(), out.end()),
                                        *std::max_element(in.begin(), in.end()));
        const std::string what = std::string(algorithm) + ", " + test::shape_text(sizes);
        EXPECT_GE(us, busiest / costs.links.network.bytes_per_us - 1e-6) << what;
        EXPECT_LE(us, all_after_another) << what;
      }
    });
  }
}

// One node represents all nodes exactly, not approximately.
TEST(Simulator, OneNodeStandsForAll) {
  const MachineCosts costs;
  int rotations = 0, exchanges = 0;
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{1, 1},
                                                                     {1, 1, 1, 1},
                                                                     {2, 2},
                                                                     {2, 2, 2},
                                                                     {3, 3, 3, 3, 3},
                                                                     {4, 4, 4, 4},
                                                                     {2, 2, 2, 2, 2, 2, 2, 2}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    for (const char* algorithm :
         {"flat", "ring", "direct", "halving_doubling", "hierarchical:direct,ring",
          "hierarchical:direct,direct", "hierarchical:direct,halving_doubling",
          "hierarchical:ring,ring", "native", "hierarchical:native,ring",
          "hierarchical:native,direct", "hierarchical:native,halving_doubling"}) {
      const std::string what = std::string(algorithm) + ", " + test::shape_text(sizes);
      const bool on_device = what.find("native") != std::string::npos;
      // Parts are equal in each of four chunks.
      const auto world = static_cast<std::size_t>(grid.world_size());
      const BucketLayout layout{.count = 4 * world * 32 * 16,
                                .memory = on_device ? MemoryKind::kDevice : MemoryKind::kHost};
      const std::size_t chunk_bytes = layout.count;
      const CompileOptions options{
          .algorithm = algorithm, .chunk_bytes = chunk_bytes, .device_chunk_bytes = chunk_bytes};
      const auto compile = compiler(grid, layout, options);
      std::vector<int> nodes;
      for (int node = 1; node < grid.num_nodes(); ++node) nodes.push_back(node);
      const NodeSymmetry symmetry = find_symmetry(grid, compile, nodes);
      const bool is_halving = what.find("halving") != std::string::npos;
      if (symmetry == NodeSymmetry::kNone) {
        // Other cases have no symmetry: ranks beyond a power of two are idle, and halves inside a
        // node are no rotation.
        EXPECT_TRUE(is_halving) << what;
        continue;
      }
      rotations += symmetry == NodeSymmetry::kRotation;
      exchanges += symmetry == NodeSymmetry::kExchange;

      const SimulatorSchedules all(grid, NodeSymmetry::kNone, compile);
      const SimulatorSchedules one(grid, symmetry, compile);
      EXPECT_EQ(all.steps(), one.steps()) << what;
      const std::vector<double> start_us(world, 3);
      const auto run = [&](const SimulatorSchedules& schedules, bool only_first_node) {
        const std::vector<SimulatedBucket> buckets{{&schedules, start_us},
                                                   {&schedules, std::vector<double>(world, 20)}};
        return simulate(grid, buckets, {.costs = costs, .only_first_node = only_first_node});
      };
      EXPECT_EQ(run(all, false), run(one, false)) << what;
      EXPECT_EQ(run(all, false), run(one, true)) << what;
    }
  }
  EXPECT_GT(rotations, 30);
  EXPECT_GT(exchanges, 5);
}

TEST(Simulator, StaysTrueToItselfWithStragglersInFewSchedules) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2, 2, 2});
  const auto compile =
      compiler(grid, {.count = 8 * 16 * 64}, in_one_chunk("hierarchical:direct,ring"));
  const SimulatorSchedules all(grid, NodeSymmetry::kNone, compile);
  const SimulatorSchedules few(grid, NodeSymmetry::kRotation, compile);
  const std::vector<double> start_us{0, 50, 3, 700, 12, 0, 0, 9};
  const SimulatorOptions options{.slowness = {1, 1, 4, 1, 1, 2, 1, 1}};
  const SimulatedBucket a{&all, start_us}, b{&few, start_us};
  EXPECT_EQ(simulate(grid, {&a, 1}, options), simulate(grid, {&b, 1}, options));
}

TEST(Simulator, RefusesWhatIsNotAlike) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const auto compile = compiler(grid, {.count = 4096}, in_one_chunk("ring"));
  const SimulatorSchedules one(grid, NodeSymmetry::kRotation, compile);
  const SimulatedBucket late{&one, {0, 0, 1, 0}};
  EXPECT_THROW(simulate(grid, {&late, 1}, {.only_first_node = true}), UsageError);
  const SimulatedBucket bucket{&one, {0, 0, 0, 0}};
  EXPECT_THROW(simulate(grid, {&bucket, 1}, {.slowness = {1, 1, 2, 1}, .only_first_node = true}),
               UsageError);
  EXPECT_NO_THROW(simulate(grid, {&bucket, 1}, {.only_first_node = true}));

  const ProcessGrid four = nodes_of_one(4);
  const auto halves = compiler(four, {.count = 4096}, in_one_chunk("halving_doubling"));
  EXPECT_THROW(SimulatorSchedules(four, NodeSymmetry::kRotation, halves), UsageError);
  const std::vector<int> nodes{1, 2, 3};
  const ProcessGrid five = nodes_of_one(5);
  const auto folded = compiler(five, {.count = 4096}, in_one_chunk("halving_doubling"));
  EXPECT_EQ(find_symmetry(five, folded, nodes), NodeSymmetry::kNone);
}

// A schedule without a step deadlocks. The error names the rank that waits, and its peer.
TEST(Simulator, NamesWhatAStuckScheduleWaitsFor) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  for (StepKind dropped : {StepKind::kSend, StepKind::kSignal}) {
    const auto compile = [&](int rank) {
      Schedule schedule = test::compile_all_reduce(rank, {.count = 4096}, grid,
                                                   in_one_chunk("hierarchical:direct,ring"));
      if (rank != 3) return schedule;
      for (Step& step : schedule.steps) {
        if (step.kind != dropped) continue;
        step = {.kind = StepKind::kCopy,
                .target = {3, Region::kScratch, 0, 1},
                .sources = {{3, Region::kScratch, 0, 1}},
                .after = step.after};
        break;
      }
      return schedule;
    };
    const SimulatorSchedules schedules(grid, NodeSymmetry::kNone, compile);
    const SimulatedBucket bucket{&schedules, std::vector<double>(4)};
    try {
      simulate(grid, {&bucket, 1}, {});
      ADD_FAILURE() << "ended without step " << static_cast<int>(dropped);
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kInternal);
      EXPECT_GE(e.error().rank, 0);
      EXPECT_NE(std::string(e.what()).find(" waits for number "), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace kolo
