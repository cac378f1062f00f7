// What decides whether a collective in device memory runs there or through mirrors.

#include "comm/goals/device/device_goal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/goals/compile_goal.h"
#include "comm/goals/even_goal.h"

namespace kolo {
namespace {

BucketLayout device_layout_of(const Goal& goal) {
  return {.count = goal.count(),
          .placement = Placement::kUser,
          .memory = MemoryKind::kDevice,
          .out_of_place = true};
}

Goal all_gather(int ranks, std::size_t count) {
  return Goal::all_gather(std::vector<std::size_t>(static_cast<std::size_t>(ranks), count));
}

const GoalAlgorithm* choice(const Goal& goal, const std::vector<int>& nodes,
                            const CompileOptions& options,
                            const GoalAlgorithmRequest& request = {}) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
  return choose_device_goal(goal, device_layout_of(goal), {grid, options}, request);
}

TEST(DeviceGoal, OneNodeTakesTheLibraryAtAnySize) {
  const std::vector<std::size_t> pairs(16, 1000), parts(4, 1000);
  for (const Goal& goal :
       {Goal::reduce(1, 4, 1), Goal::reduce(1, 4, 1 << 20), Goal::reduce_scatter(parts),
        all_gather(4, 1), all_gather(4, 1 << 20), Goal::gather(2, parts), Goal::scatter(2, parts),
        Goal::all_to_all(4, pairs), Goal::broadcast(3, 4, 100), Goal::all_reduce(4, 100)}) {
    EXPECT_EQ(choice(goal, {4}, {}), &goal_algorithms::native);
  }
}

TEST(DeviceGoal, MirrorsAreTakenWhereTheyCostLess) {
  CompileOptions slow_launch, slow_links;
  slow_launch.link_costs.device.latency_us = 100;
  slow_links.link_costs.device.bytes_per_us = 100;
  EXPECT_EQ(choice(all_gather(4, 16), {4}, slow_launch), nullptr);
  EXPECT_NE(choice(all_gather(4, 1 << 22), {4}, slow_launch), nullptr);
  EXPECT_NE(choice(all_gather(4, 16), {4}, slow_links), nullptr);
  EXPECT_EQ(choice(all_gather(4, 1 << 22), {4}, slow_links), nullptr);
}

TEST(DeviceGoal, RanksThatTheLibraryDoesNotReachTakeMirrors) {
  CompileOptions options{.native_spans_nodes = false};
  for (const std::vector<int>& nodes : {std::vector{4}, {2, 2}}) {
    EXPECT_EQ(choice(all_gather(4, 1 << 20), nodes, options), nullptr);
    EXPECT_EQ(choice(all_gather(4, 1 << 20), nodes, options, "native"), nullptr);
  }
}

TEST(DeviceGoal, NodesThatTheLibraryDoesNotReachWellTakeMirrors) {
  CompileOptions alone{.native_spans_nodes = false}, slow;
  slow.link_costs.native_network.bytes_per_us = 10;
  const std::vector<std::size_t> parts(4, 1 << 20), pairs(16, 1 << 18);
  for (const Goal& goal :
       {Goal::reduce(1, 4, 1 << 22), Goal::broadcast(3, 4, 1 << 22), Goal::reduce_scatter(parts),
        Goal::all_gather(parts), Goal::gather(2, parts), Goal::scatter(0, parts),
        Goal::all_to_all(4, pairs)}) {
    for (const CompileOptions& options : {alone, slow}) {
      EXPECT_EQ(choice(goal, {2, 2}, options), nullptr) << to_string(goal.kind);
    }
  }
}

TEST(DeviceGoal, ARequestDecides) {
  CompileOptions slow;
  slow.link_costs.device.latency_us = 100;
  const Goal goal = all_gather(4, 16);
  EXPECT_EQ(choice(goal, {4}, slow, "native"), &goal_algorithms::native);
  EXPECT_EQ(choice(goal, {4}, {}, "direct"), nullptr) << "an algorithm of the host";
  EXPECT_EQ(choice(goal, {4}, {}, "ring"), &goal_algorithms::native) << "none of one node";
}

TEST(DeviceGoal, AllReducesMayBeInPlace) {
  const Goal goal = Goal::all_reduce(4, 100);
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4});
  const CompileOptions options;
  BucketLayout layout = device_layout_of(goal);
  layout.out_of_place = false;
  EXPECT_EQ(choose_device_goal(goal, layout, {grid, options}, {}), &goal_algorithms::native);
}

}  // namespace
}  // namespace kolo
