// How reduces and broadcasts in device memory go between nodes.

#include "comm/goals/device/rooted_route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "comm/goals/compile_goal.h"
#include "comm/goals/device/places.h"
#include "comm/goals/goal_price.h"
#include "comm/verify/verifier.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

const LinkCosts kCosts;

TEST(RootedRoute, EachNodeIsBelowOneOther) {
  for (const TreeShape shape : {TreeShape::kBinomial, TreeShape::kChain, TreeShape::kStar}) {
    for (int nodes = 1; nodes <= 17; ++nodes) {
      std::vector<int> times_below(static_cast<std::size_t>(nodes));
      for (int node = 0; node < nodes; ++node) {
        const TreeEdges edges = edges_of(shape, node, nodes);
        EXPECT_EQ(edges.above.has_value(), node != 0);
        for (const int below : edges.below) {
          ASSERT_LT(node, below);
          ASSERT_LT(below, nodes);
          ++times_below[static_cast<std::size_t>(below)];
          EXPECT_EQ(edges_of(shape, below, nodes).above, node);
        }
      }
      EXPECT_EQ(times_below[0], 0);
      EXPECT_EQ(std::count(times_below.begin() + 1, times_below.end(), 1), nodes - 1);
    }
  }
}

GoalSize size_of_reduce(double bytes) { return {.kind = GoalKind::kReduce, .bytes = bytes}; }

TEST(RootedRoute, SmallOnesTakeFewHopsAndLargeOnesAChainOfPieces) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(std::vector<int>(16, 4));
  const HostLinks links(grid, kCosts, 0);
  const RootedRoute small = cheapest_route(links, size_of_reduce(1'000), {});
  EXPECT_EQ(small.shape, TreeShape::kBinomial);
  EXPECT_EQ(small.pieces, 1U);
  const RootedRoute large = cheapest_route(links, size_of_reduce(64e6), {});
  EXPECT_EQ(large.shape, TreeShape::kChain);
  EXPECT_GT(large.pieces, 10U);
  EXPECT_LT(large.us, 1.5 * 64e6 / kCosts.network.bytes_per_us);
}

TEST(RootedRoute, SumsThatWouldBeRoundedTakeAStar) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2, 2, 2});
  const HostLinks links(grid, kCosts, 0);
  GoalSize size = size_of_reduce(64e6);
  size.sums_in_one_place = true;
  EXPECT_EQ(cheapest_route(links, size, {}).shape, TreeShape::kStar);
  size.kind = GoalKind::kBroadcast;
  EXPECT_EQ(cheapest_route(links, size, {}).shape, TreeShape::kChain);
}

// A name keeps its scratch memory and its flags.
TEST(RootedRoute, TakesLittleMemoryAndFewFlags) {
  constexpr std::size_t kCount = 1 << 24;
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2, 2, 2});
  const Goal goal = Goal::reduce(0, 8, kCount);
  const BucketLayout layout{
      .count = kCount, .placement = Placement::kUser, .memory = MemoryKind::kDevice};
  const Schedule root = compile_goal(0, goal, layout, grid, {}, "hierarchical");
  EXPECT_LT(root.scratch_count, kCount / 4);
  EXPECT_LE(root.flag_count, 128U);
  EXPECT_EQ(compile_goal(6, goal, layout, grid, {}, "hierarchical").flag_count, root.flag_count)
      << "another node";
}

TEST(RootedRoute, SharesAreEqualButAtTheEnd) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3, 3});
  const Goal goal = Goal::reduce(0, 6, 100'000);
  const Places places(goal, grid, 0);
  std::size_t count = 0;
  for (std::size_t piece = 0; piece < 16; ++piece) {
    const std::vector<Extent> shares = places.shares(0, piece, 16, DType::kFloat32);
    EXPECT_EQ(shares[0].offset, count);
    for (const Extent& share : shares) {
      EXPECT_TRUE(piece == 15 || share.count == shares[0].count) << piece;
      count += share.count;
    }
  }
  EXPECT_EQ(count, 100'000U);
}

TEST(RootedRoute, ManyPiecesReachTheirEnds) {
  constexpr std::size_t kCount = 1 << 18;
  for (const std::vector<int>& sizes : {std::vector<int>{2, 2}, {1, 1, 1, 1}, {2, 2, 2}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    const int ranks = grid.world_size();
    for (const int root : {0, ranks - 1}) {
      for (const Goal& goal :
           {Goal::reduce(root, ranks, kCount), Goal::broadcast(root, ranks, kCount)}) {
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
          const BucketLayout layout{.count = kCount,
                                    .dtype = dtype,
                                    .placement = Placement::kUser,
                                    .memory = MemoryKind::kDevice};
          SCOPED_TRACE(test::shape_text(sizes) + " root " + std::to_string(root));
          ASSERT_GT(cheapest_route(HostLinks(grid, kCosts, 0), size_of(goal, layout), {}).pieces,
                    3U);
          std::vector<Schedule> schedules;
          for (int rank = 0; rank < ranks; ++rank) {
            schedules.push_back(compile_goal(rank, goal, layout, grid, {}, "hierarchical"));
          }
          EXPECT_EQ(verify(schedules, grid, goal), std::nullopt);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kolo
