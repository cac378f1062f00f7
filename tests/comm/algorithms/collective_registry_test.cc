#include "comm/algorithms/compile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/algorithms/registry.h"
#include "comm/base/error.h"

namespace kolo {
namespace {

/// Returns specs of every kind except all-reduce, with `count` elements in total.
std::vector<CollectiveSpec> specs_of(int ranks, std::size_t count) {
  std::vector<CollectiveSpec> specs;
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    if (kind == CollectiveKind::kAllReduce) continue;
    const std::size_t of_rank = count / static_cast<std::size_t>(ranks);
    specs.push_back(even_spec(kind, ranks, has_pairs(kind) ? of_rank : count));
  }
  return specs;
}

BucketLayout layout_of(const CollectiveSpec& spec) {
  return {.count = spec.count(), .placement = Placement::kUser, .out_of_place = true};
}

Choice choice(const CollectiveSpec& spec, const ProcessGrid& grid,
              const CompileOptions& options = {}) {
  return choose({spec, layout_of(spec), grid, options});
}

std::string taken(const CollectiveSpec& spec, const ProcessGrid& grid,
                  const CompileOptions& options = {}) {
  return std::string(choice(spec, grid, options).algorithm->name());
}

TEST(CollectiveRegistry, EveryAlgorithmHasAPriceThatGrowsWithTheBytes) {
  for (const std::vector<int>& sizes :
       {std::vector{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {2, 2}, {2, 1, 2}, {4, 4, 4, 4, 4}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    std::map<std::pair<const Algorithm*, CollectiveKind>, double> last;
    for (std::size_t count = 256; count <= std::size_t{16} << 20; count *= 4) {
      for (const CollectiveSpec& spec : specs_of(grid.world_size(), count)) {
        for (const Algorithm* each : all_algorithms()) {
          const CompileOptions options;
          BucketLayout layout = layout_of(spec);
          const CompileContext context{spec, layout, grid, options};
          if (!each->serves(context)) layout.memory = MemoryKind::kDevice;
          if (!each->serves(context)) continue;
          const double us = each->price(context).us;
          if (std::isinf(us)) continue;
          EXPECT_GT(us, (last[{each, spec.kind}])) << each->name() << " " << count;
          last[{each, spec.kind}] = us;
        }
      }
    }
  }
}

// The faster of packed and streamed copies sets the price.
TEST(CollectiveRegistry, SumsCostWhatContributionsTakeFromRankToRank) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2});
  const auto price = [&](const CollectiveSpec& spec, double packed, double streamed) {
    CompileOptions options;
    options.link_costs.memory.packed_bytes_per_us = packed;
    options.link_costs.memory.streamed_bytes_per_us = streamed;
    options.algorithm = "direct";
    return choice(spec, grid, options).price.us;
  };
  for (const CollectiveSpec& spec : specs_of(2, 1 << 20)) {
    const double near_us = price(spec, 20'000, 15'000), far_us = price(spec, 3'000, 2'000);
    EXPECT_EQ(price(spec, 3'000, 20'000), near_us);
    EXPECT_EQ(price(spec, 20'000, 1), near_us);
    if (reduces(spec.kind)) {
      EXPECT_GT(far_us, 3 * near_us);
    } else {
      EXPECT_EQ(far_us, near_us);
    }
  }
}

TEST(CollectiveRegistry, ARequestThatDoesNotServeASpecLeavesTheChoice) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1});
  const CollectiveSpec spec = CollectiveSpec::all_gather(std::vector<std::size_t>{4, 4, 4});
  EXPECT_EQ(taken(spec, grid, {.algorithm = "direct"}), "direct");
  EXPECT_EQ(choice(spec, grid, {.algorithm = "direct"}).reason, "direct: asked for");
  EXPECT_EQ(taken(spec, grid, {.algorithm = "direct;all-gather:ring"}), "ring");
  EXPECT_EQ(taken(spec, grid, {.algorithm = "scatter_allgather"}), taken(spec, grid));
  EXPECT_EQ(taken(spec, grid, {.algorithm = "direct;all-gather:auto"}), taken(spec, grid));
}

TEST(CollectiveRegistry, ANamedAlgorithmIsTakenWhereItServes) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  for (const Algorithm* each : all_algorithms()) {
    for (const CollectiveSpec& small : specs_of(4, 256)) {
      const CompileOptions options{.algorithm = each->name()};
      const BucketLayout layout = layout_of(small);
      if (!each->serves({small, layout, grid, options})) continue;
      EXPECT_EQ(choice(small, grid, options).algorithm, each);
    }
  }
}

// The costs were measured on four hosts that are containers of one machine with two cores, for
// calls after a rest.
TEST(CollectiveRegistry, AFewSmallMessagesOfARootGoStraight) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  CompileOptions options;
  options.link_costs.network = {
      .latency_us = 0, .bytes_per_us = 117, .message_us = 4.5, .burst_bytes = 300'000};
  options.link_costs.rank_cores = 0.5;
  const auto taken = [&](const CollectiveSpec& spec) { return kolo::taken(spec, grid, options); };
  for (const std::size_t count : {1, 64, 1024}) {
    const std::vector<std::size_t> counts(4, count);
    EXPECT_EQ(taken(CollectiveSpec::scatter(0, counts)), "direct") << count;
    EXPECT_EQ(taken(CollectiveSpec::gather(0, counts)), "direct") << count;
    EXPECT_EQ(taken(CollectiveSpec::broadcast(0, 4, count)), "direct") << count;
    EXPECT_EQ(taken(CollectiveSpec::reduce(0, 4, count)), "direct") << count;
  }
  EXPECT_EQ(taken(CollectiveSpec::broadcast(0, 4, 4096)), "ring")
      << "the root's link would pass it thrice";
  EXPECT_EQ(taken(CollectiveSpec::reduce(0, 4, 4096)), "ring");
}

// The loss on crowded links is assumed, not measured. The true loss may be four times higher or
// lower: docs/decisions/0041-constants.md.
TEST(CollectiveRegistry, AWrongLossOfCrowdedLinksHardlyMatters) {
  constexpr double kTrue = NetworkCost{}.crowded_loss;
  for (const auto& [truth, believed] :
       {std::pair(kTrue, kTrue / 4), {kTrue, kTrue * 4}, {kTrue / 4, kTrue}, {kTrue * 4, kTrue}}) {
    CompileOptions real, decider;
    real.link_costs.network.crowded_loss = truth;
    decider.link_costs.network.crowded_loss = believed;
    for (const std::vector<int>& sizes : {std::vector{1, 1, 1}, {1, 1, 1, 1}, {4, 4, 4, 4}}) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      for (std::size_t count = 256; count <= std::size_t{16} << 20; count *= 4) {
        for (const CollectiveSpec& spec : specs_of(grid.world_size(), count)) {
          const BucketLayout layout = layout_of(spec);
          const auto us = [&](const CompileOptions& options) {
            const Algorithm& taken = *choose({spec, layout, grid, options}).algorithm;
            return std::pair(taken.price({spec, layout, grid, real}).us, taken.name());
          };
          const auto [best_us, best] = us(real);
          const auto [taken_us, taken] = us(decider);
          EXPECT_LE(taken_us, 1.25 * best_us)
              << "spec " << static_cast<int>(spec.kind) << " of " << count << " on " << sizes.size()
              << " nodes: " << taken << " in place of " << best << ", " << believed << " for "
              << truth;
        }
      }
    }
  }
}

// An engine does not answer its peers while it plans, so planning must be short.
TEST(CollectiveRegistry, HugeSpecsArePlannedInFewPieces) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  constexpr std::size_t kCount = std::size_t{1} << 30;  // 4 GiB
  for (const CollectiveSpec& spec : specs_of(2, kCount)) {
    const BucketLayout layout = layout_of(spec);
    for (const Algorithm* each : all_algorithms()) {
      const CompileOptions options;
      const CompileContext context{spec, layout, grid, options};
      if (!each->serves(context)) continue;
      EXPECT_LT(compile(0, *each, context).steps.size(), 250'000) << each->name();
    }
  }
}

// Jobs without nodes of several ranks, with uneven nodes, and on one node.
TEST(CollectiveRegistry, EveryShapeHasAnAlgorithm) {
  for (const std::vector<int>& sizes :
       {std::vector{1}, {4}, {1, 1}, {3, 1, 2}, std::vector<int>(9, 1)}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    for (const CollectiveSpec& spec : specs_of(grid.world_size(), 36)) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        BucketLayout layout = layout_of(spec);
        layout.dtype = dtype;
        EXPECT_NO_THROW(choose({spec, layout, grid, {}})) << to_string(spec.kind);
        layout.placement = Placement::kInPlace;
        EXPECT_THROW(choose({spec, layout, grid, {}}), UsageError) << to_string(spec.kind);
      }
    }
  }
}

}  // namespace
}  // namespace kolo
