#include "comm/algorithms/all_reduce/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/algorithms/compile.h"

namespace kolo {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<ProcessGrid> grids() {
  std::vector<ProcessGrid> result;
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{1},
                                                                     {2},
                                                                     {4},
                                                                     {7},
                                                                     {1, 1},
                                                                     {2, 2},
                                                                     {4, 4},
                                                                     {1, 1, 1, 1, 1},
                                                                     {3, 2},
                                                                     {4, 1},
                                                                     {2, 2, 2},
                                                                     {8, 8, 8, 8}}) {
    result.push_back(ProcessGrid::with_node_sizes(sizes));
  }
  result.push_back(ProcessGrid({"a", "b", "a", "b"}));
  return result;
}

std::vector<const AllReduce*> for_host() {
  std::vector<const AllReduce*> found;
  for (const AllReduce& each : all_reduces()) {
    if (each.is_for_auto(MemoryKind::kHost)) found.push_back(&each);
  }
  return found;
}

double predict_us(const CostModel& model, const std::string& algorithm, const HostBucket& bucket) {
  return model.host_price(find_all_reduce(algorithm), bucket).us;
}

const AllReduce& choice(const ProcessGrid& grid, const LinkCosts& costs,
                        const BucketLayout& layout) {
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
  const CompileOptions options{.link_costs = costs};
  return find_all_reduce(choose({spec, layout, grid, options}).algorithm->name());
}

BucketLayout layout_of(std::size_t bytes, DType dtype = DType::kFloat32,
                       Placement placement = Placement::kInPlace) {
  return {.count = bytes / size_of(dtype), .dtype = dtype, .placement = placement};
}

std::string chosen(const ProcessGrid& grid, const LinkCosts& costs, std::size_t bytes,
                   DType dtype = DType::kFloat32) {
  return std::string(choice(grid, costs, layout_of(bytes, dtype)).name());
}

std::size_t fusion_bytes(const ProcessGrid& grid, const LinkCosts& costs, std::size_t bytes,
                         MemoryKind memory = MemoryKind::kHost) {
  return cheapest_bucket_bytes(bytes, memory, grid, {.link_costs = costs});
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> result{0};
  for (std::size_t bytes = 1; bytes <= 1024 * kMiB; bytes *= 4) result.push_back(bytes);
  return result;
}

TEST(CostModel, PredictionsGrowWithBytes) {
  for (const ProcessGrid& grid : grids()) {
    const CostModel model(grid, {});
    for (const AllReduce* const name : for_host()) {
      for (const std::size_t chunk : {std::size_t{0}, std::size_t{1} << 18, kMiB}) {
        double previous = 0;
        for (const std::size_t bytes : sizes()) {
          const double predicted =
              model.host_price(*name, {.bytes = bytes, .chunk_bytes = chunk}).us;
          EXPECT_GE(predicted, previous)
              << name->name() << ", " << bytes << " bytes, chunks of " << chunk;
          previous = predicted;
        }
      }
    }
  }
}

TEST(CostModel, ChoosesTheLowestPrediction) {
  for (const ProcessGrid& grid : grids()) {
    const CostModel model(grid, {});
    for (const std::size_t bytes : sizes()) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        for (const Placement placement :
             {Placement::kInPlace, Placement::kUser, Placement::kStaged}) {
          const BucketLayout layout = layout_of(bytes, dtype, placement);
          double best = std::numeric_limits<double>::infinity();
          for (const AllReduce* const name : for_host()) {
            if (grid.num_nodes() == 1 && !name->maps_memory()) continue;
            if (name->flat() != nullptr && layout.bytes() > name->flat()->auto_most_bytes) continue;
            if (dtype == DType::kBFloat16 && !name->sums_in_one_place()) continue;
            best = std::min(best, model.host_price(*name, host_bucket(layout)).us);
          }
          const AllReduce& chosen = choice(grid, {}, layout);
          EXPECT_EQ(model.host_price(chosen, host_bucket(layout)).us, best);
          EXPECT_TRUE(dtype == DType::kFloat32 || chosen.sums_in_one_place()) << chosen.name();
        }
      }
    }
  }
}

TEST(CostModel, OneRankCostsNothing) {
  const CostModel model(ProcessGrid::with_node_sizes({1}), {});
  for (const AllReduce* const name : for_host()) {
    EXPECT_EQ(model.host_price(*name, {.bytes = kMiB}).us, 0) << name->name();
  }
}

/// Returns a memory cost of nearly zero, so that predictions contain only the network's cost.
MemoryCost free_memory() {
  return {.latency_us = 0,
          .cached_bytes_per_us = 1e12,
          .bytes_per_us_8m = 1e12,
          .bytes_per_us_32m = 1e12,
          .bytes_per_us = 1e12,
          .shared_bytes_per_us = 1e12};
}

/// Returns latency 2 and 10 bytes/us inside a node, 100 and 1 between nodes, and no other cost.
LinkCosts round_costs() {
  LinkCosts costs;
  costs.memory = {.latency_us = 2,
                  .cached_bytes_per_us = 10,
                  .bytes_per_us_8m = 10,
                  .bytes_per_us_32m = 10,
                  .bytes_per_us = 10,
                  .shared_bytes_per_us = 10,
                  .slot_bytes_per_us = 2};
  costs.network = {.latency_us = 100, .bytes_per_us = 1, .message_us = 0};
  costs.bucket_us = costs.step_us = 0;
  return costs;
}

double whole_us(const CostModel& model, const std::string& algorithm, std::size_t bytes) {
  return predict_us(model, algorithm, {.bytes = bytes, .chunk_bytes = bytes});
}

// The expected times are computed by hand: trips or messages, then bytes on the link, then bytes
// read and written in a node.
TEST(CostModel, AgreesWithTheFormulas) {
  const CostModel node(ProcessGrid::with_node_sizes({4}), round_costs());
  EXPECT_DOUBLE_EQ(whole_us(node, "direct", 400), 2 * 2 + 4 * 2 * 40);
  EXPECT_DOUBLE_EQ(whole_us(node, "flat", 400), 2 + 4 * 4 * 40 + 4 * 3 * 40);

  const CostModel network(ProcessGrid::with_node_sizes({1, 1, 1}), round_costs());
  EXPECT_DOUBLE_EQ(whole_us(network, "ring", 300), 4 * (100 + 100) + 2 * 3 * 10);
  EXPECT_DOUBLE_EQ(whole_us(network, "direct", 300), 2 * (100 + 200) + 4 * 10);
  EXPECT_DOUBLE_EQ(whole_us(network, "flat", 300), 100 + 600 + (2 + 4) * 30);
  EXPECT_DOUBLE_EQ(whole_us(network, "halving_doubling", 300),
                   2 * (100 + 300 + 100 + 150) + 3 * 30 + 3 * 15);

  // Each node's link carries all parts. Inside the node, parts are combined or copied.
  const CostModel both(ProcessGrid::with_node_sizes({2, 2}), round_costs());
  EXPECT_DOUBLE_EQ(whole_us(both, "hierarchical:direct,ring", 400),
                   3 * 2 + 2 * 3 * 20 + 2 * 40 + 2 * (100 + 200) + 3 * 20);
  // A ring crosses node borders once per direction, or with every message if ranks alternate.
  EXPECT_DOUBLE_EQ(whole_us(both, "ring", 400), 6 * (100 + 100 + 4 * 10) + 3 * 2 * 3 * 10);
  const CostModel interleaved(ProcessGrid({"a", "b", "a", "b"}), round_costs());
  EXPECT_DOUBLE_EQ(whole_us(interleaved, "ring", 400), 6 * (100 + 200) + 3 * 2 * 3 * 10);
}

TEST(CostModel, FasterNodesMakeMoreOfTheSums) {
  LinkCosts costs = round_costs();
  costs.node_rates = {2, 1, 2};
  const CostModel model(ProcessGrid::with_node_sizes({1, 1, 1}), costs);
  // With "direct" the slow link carries one bucket; in a ring it carries four thirds.
  EXPECT_DOUBLE_EQ(whole_us(model, "direct", 300), 2 * 100 + 300 + 4 * 10);
  EXPECT_DOUBLE_EQ(whole_us(model, "ring", 300), 4 * (100 + 100) + 2 * 3 * 10);
}

TEST(CostModel, RanksOfANodeExchangeTheirPartsAtOnce) {
  LinkCosts costs = round_costs();
  costs.memory = free_memory();
  costs.network.bytes_per_us = 1e12;
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const auto predict_us = [&](std::size_t bytes) {
    return whole_us(CostModel(grid, costs), "hierarchical:direct,halving_doubling", bytes);
  };
  EXPECT_NEAR(predict_us(1024), 2 * 100, 1e-6);
}

TEST(CostModel, WhatALinkHasSavedUpPassesAtOnce) {
  LinkCosts costs = round_costs();
  const auto predict_us = [&](const char* algorithm, std::size_t bytes, double burst_bytes) {
    costs.network.burst_bytes = burst_bytes;
    return whole_us(CostModel(ProcessGrid::with_node_sizes({1, 1}), costs), algorithm, bytes);
  };
  EXPECT_DOUBLE_EQ(predict_us("ring", 300, 0), 2 * (100 + 150) + 3 * 15);
  EXPECT_DOUBLE_EQ(predict_us("ring", 300, 200), 2 * (100 + 150) + 3 * 15 - 200);
  // 600 bytes each way take 600 us, less 100 saved up in a rest of 100 us. A twentieth of the time
  // for waiting and adding is visible.
  EXPECT_DOUBLE_EQ(predict_us("ring", 600, 2000), 600 - 100 + (2 * 100 + 3 * 30) / 20.0);
  // Waiting and adding take longer than the link.
  EXPECT_DOUBLE_EQ(predict_us("ring", 100, 1000), 2 * 100 + 3 * 5);
}

TEST(CostModel, CountsStepsMessagesAndBuckets) {
  LinkCosts costs = round_costs();
  costs.step_us = 1;
  costs.bucket_us = 1000;
  const CostModel node(ProcessGrid::with_node_sizes({4}), costs);
  // "direct" signals and awaits 3 peers twice, and reduces once. "flat" does so once, after a copy.
  EXPECT_DOUBLE_EQ(whole_us(node, "direct", 0), 2 * 2 + 12 + 1 + 1000);
  EXPECT_DOUBLE_EQ(whole_us(node, "flat", 0), 2 + 6 + 2 + 1000);

  costs = round_costs();
  costs.network.message_us = 1;
  const CostModel network(ProcessGrid::with_node_sizes({1, 1, 1}), costs);
  const double agreement = 4;
  EXPECT_DOUBLE_EQ(whole_us(network, "ring", 0), 4 * (100 + 2) + agreement);
  EXPECT_DOUBLE_EQ(whole_us(network, "direct", 0), 2 * (100 + 4) + agreement);
  EXPECT_DOUBLE_EQ(whole_us(network, "flat", 0), 100 + 4 + agreement);
}

// The costs were measured on four containers of one machine with two cores.
TEST(CostModel, RanksThatOutnumberCoresHandleMessagesOneAfterTheOther) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  LinkCosts costs;
  costs.network = {.latency_us = 0, .bytes_per_us = 116, .message_us = 7};
  EXPECT_EQ(chosen(grid, costs, 4), "flat");
  const double flat_alone = predict_us(CostModel(grid, costs), "flat", {.bytes = 4});
  const double ring_alone = predict_us(CostModel(grid, costs), "ring", {.bytes = 4096});

  costs.rank_cores = 0.5;
  const CostModel shared(grid, costs);
  // Each rank sends and receives 3 messages. In each of six rounds of a ring, four pairs are
  // active.
  EXPECT_NEAR(predict_us(shared, "flat", {.bytes = 4}) - flat_alone, 6 * 7, 1e-9);
  EXPECT_NEAR(predict_us(shared, "ring", {.bytes = 4096}) - ring_alone, 6 * 2 * 7, 1e-9);
}

TEST(CostModel, ChunksFollowEachOtherAtThePaceOfTheBusiestResource) {
  const CostModel network(ProcessGrid::with_node_sizes({1, 1}), round_costs());
  const double first = 2 * (100 + 50) + 3 * 5;
  EXPECT_DOUBLE_EQ(predict_us(network, "ring", {.bytes = 100, .chunk_bytes = 100}), first);
  EXPECT_DOUBLE_EQ(predict_us(network, "ring", {.bytes = 400, .chunk_bytes = 100}),
                   first + 3 * (2 * 50 + 3 * 5 / 20.0));
  // Chunks from the third rank to the first overlap with chunks back.
  const CostModel three(ProcessGrid::with_node_sizes({1, 1, 1}), round_costs());
  EXPECT_DOUBLE_EQ(
      predict_us(three, "halving_doubling", {.bytes = 1200, .chunk_bytes = 300}),
      whole_us(three, "halving_doubling", 300) + 3 * (300 + 2 * 150 + (3 * 30 + 3 * 15) / 20.0));
  // Combining is slower than the link.
  LinkCosts costs = round_costs();
  costs.memory.cached_bytes_per_us = 0.1;
  const CostModel slow(ProcessGrid::with_node_sizes({1, 1}), costs);
  EXPECT_DOUBLE_EQ(predict_us(slow, "ring", {.bytes = 400, .chunk_bytes = 100}),
                   2 * (100 + 50) + 4 * 3 * 500 + 3 * 2 * 50 / 20.0);
}

TEST(CostModel, MemoryBeyondTheCacheIsSlower) {
  LinkCosts costs = round_costs();
  costs.memory.bytes_per_us_32m = 5;
  costs.memory.bytes_per_us = 2;
  const CostModel node(ProcessGrid::with_node_sizes({2}), costs);
  const auto us = [&](double bytes, double rate) { return 4 + 4 * bytes / rate; };
  const auto two_buckets = [&](std::size_t bytes) { return whole_us(node, "direct", bytes / 2); };
  EXPECT_DOUBLE_EQ(two_buckets(8 * kMiB), us(4 * kMiB, 10));
  EXPECT_DOUBLE_EQ(two_buckets(32 * kMiB), us(16 * kMiB, 5));
  EXPECT_DOUBLE_EQ(two_buckets(64 * kMiB), us(32 * kMiB, 2));
  EXPECT_DOUBLE_EQ(two_buckets(256 * kMiB), us(128 * kMiB, 2));
  // The size is half way, on a logarithmic scale, between two measured sizes.
  EXPECT_DOUBLE_EQ(two_buckets(16 * kMiB), (us(8 * kMiB, 10) + us(8 * kMiB, 5)) / 2);
}

TEST(CostModel, PackingCostsWhatItMoves) {
  const CostModel node(ProcessGrid::with_node_sizes({2}), round_costs());
  const auto extra = [](const CostModel& model, const std::string& name, Packing packing) {
    return predict_us(model, name, {.bytes = 400, .packing = packing, .chunk_bytes = 400}) -
           predict_us(model, name, {.bytes = 400, .chunk_bytes = 400});
  };
  // The other rank's half passes through slots on both ranks. A rank's own half is copied to a slot
  // and back only if it is converted.
  EXPECT_DOUBLE_EQ(extra(node, "direct", Packing::kUser), 200);
  EXPECT_DOUBLE_EQ(extra(node, "direct", Packing::kCast), 200 + 2 * 40);
  EXPECT_DOUBLE_EQ(extra(node, "flat", Packing::kCast), 0);
  const CostModel network(ProcessGrid::with_node_sizes({1, 1}), round_costs());
  EXPECT_DOUBLE_EQ(extra(network, "ring", Packing::kUser), 4 * 40);
}

TEST(CostModel, PrefersWhatTheDesignExpects) {
  const ProcessGrid node = ProcessGrid::with_node_sizes({2});
  EXPECT_EQ(chosen(node, {}, 4), "flat");
  EXPECT_EQ(chosen(node, {}, 4, DType::kFloat16), "flat");
  EXPECT_EQ(chosen(node, {}, kMiB), "direct");
  EXPECT_EQ(chosen(ProcessGrid::with_node_sizes({8}), {}, 64 * kMiB), "direct");
  const ProcessGrid cluster = ProcessGrid::with_node_sizes({4, 4, 4, 4});
  EXPECT_TRUE(chosen(cluster, {}, 64 * kMiB).starts_with("hierarchical:direct,"));
  EXPECT_EQ(chosen(ProcessGrid::with_node_sizes({1, 1}), {}, 4), "flat");
}

TEST(CostModel, ChunkSizeIsTheBestOneWithinABucket) {
  for (const ProcessGrid& grid : grids()) {
    const CostModel model(grid, {});
    for (const AllReduce* const name : for_host()) {
      for (const std::size_t bytes : {std::size_t{0}, kMiB, 100 * kMiB}) {
        HostBucket bucket{.bytes = bytes};
        const double predicted = model.host_price(*name, bucket).us;
        const std::size_t chosen = model.chunk_bytes(*name, bucket);
        for (bucket.chunk_bytes = 64 << 10; bucket.chunk_bytes <= 64 * kMiB;
             bucket.chunk_bytes *= 2) {
          EXPECT_LE(predicted, model.host_price(*name, bucket).us) << name->name() << ", " << bytes;
          if (bucket.chunk_bytes == chosen) {
            EXPECT_EQ(predicted, model.host_price(*name, bucket).us);
          }
        }
      }
    }
  }
  // Only between nodes do chunks overlap: one is exchanged while another is summed in the node.
  const CostModel node(ProcessGrid::with_node_sizes({2}), {});
  EXPECT_EQ(node.chunk_bytes(find_all_reduce("direct"), {.bytes = 10 * kMiB}), 16 * kMiB);
  const CostModel cluster(ProcessGrid::with_node_sizes({4, 4}), {});
  EXPECT_LT(cluster.chunk_bytes(find_all_reduce("hierarchical:direct,ring"), {.bytes = 64 * kMiB}),
            8 * kMiB);
}

TEST(CostModel, NodeSumsInRankOrderWhateverItsLinksCost) {
  for (const double rate : {1.0, 1e3, 1e6}) {
    LinkCosts costs;
    costs.memory.cached_bytes_per_us = rate;
    costs.memory.shared_bytes_per_us = 1e6 / rate;
    for (const int ranks : {1, 2, 4, 16}) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes({ranks});
      for (const Placement placement : {Placement::kInPlace, Placement::kUser}) {
        for (const std::size_t bytes : sizes()) {
          const AllReduce& chosen =
              choice(grid, costs, layout_of(bytes, DType::kFloat32, placement));
          EXPECT_TRUE(chosen.maps_memory() && chosen.sums_in_one_place())
              << chosen.name() << ", " << bytes;
          EXPECT_LE(bytes / 4 * 4, chosen.flat()->auto_most_bytes) << chosen.name();
        }
      }
    }
  }
}

TEST(CostModel, FusionSizeGrowsWithWhatABucketCosts) {
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{2}, {1, 1}, {4, 4}}) {
    std::size_t previous = 0;
    for (const double bucket_us : {0.0, 1.0, 10.0, 100.0, 1000.0, 1e7}) {
      LinkCosts costs;
      costs.bucket_us = bucket_us;
      const std::size_t chosen =
          fusion_bytes(ProcessGrid::with_node_sizes(sizes), costs, 100 * kMiB);
      EXPECT_GE(chosen, previous) << bucket_us;
      previous = chosen;
    }
    EXPECT_EQ(previous, 64 * kMiB);  // each bucket costs more than all bytes
  }
  const ProcessGrid node = ProcessGrid::with_node_sizes({2});
  EXPECT_EQ(fusion_bytes(node, {}, 0), 64u << 10);
  EXPECT_LE(fusion_bytes(node, {}, kMiB), kMiB);
}

TEST(CostModel, BucketsInDeviceMemoryLeaveLittleToDoAtTheEnd) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4, 4, 4, 4});
  const LinkCosts costs = parse_link_costs("network_bytes_per_us=1250");
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
  const std::size_t all = 100 * kMiB;
  const std::size_t chosen = fusion_bytes(grid, costs, all, MemoryKind::kDevice);
  const auto left_us = [&](std::size_t bytes) {
    const BucketLayout layout{.count = bytes / 4, .memory = MemoryKind::kDevice};
    const CompileOptions options{.link_costs = costs};
    return choose({spec, layout, grid, options}).price.us;
  };
  EXPECT_LT(left_us(chosen), left_us(all) / 4);
  LinkCosts costly;
  costly.bucket_us = 1e7;
  EXPECT_EQ(fusion_bytes(grid, costly, all, MemoryKind::kDevice), 64 * kMiB);
  EXPECT_EQ(fusion_bytes(grid, costs, 0, MemoryKind::kDevice), 64u << 10);
}

}  // namespace
}  // namespace kolo
