// What decides whether a collective in device memory runs there or through mirrors.

#include "comm/algorithms/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/algorithms/compile.h"
#include "comm/schedule/goal.h"

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

/// Whether it runs in device memory: as one call of the library on the tensors, or in a bucket.
bool is_native(const Goal& goal, const std::vector<int>& nodes, const CompileOptions& options) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
  BucketLayout device = device_layout_of(goal), host = device;
  host.memory = MemoryKind::kHost;
  const double copies_us =
      mirror_us(goal, device.dtype, grid.world_size(), options.link_costs.staging);
  const Placing placings[] = {{goal, device}, {goal, host, copies_us}};
  return choose_placing(placings, grid, options) == 0;
}

TEST(DeviceGoal, OneNodeTakesTheLibraryAtAnySize) {
  const std::vector<std::size_t> pairs(16, 1000), parts(4, 1000);
  for (const Goal& goal :
       {Goal::reduce(1, 4, 1), Goal::reduce(1, 4, 1 << 20), Goal::reduce_scatter(parts),
        all_gather(4, 1), all_gather(4, 1 << 20), Goal::gather(2, parts), Goal::scatter(2, parts),
        Goal::all_to_all(4, pairs), Goal::broadcast(3, 4, 100), Goal::all_reduce(4, 100)}) {
    EXPECT_TRUE(is_native(goal, {4}, {}));
  }
}

TEST(DeviceGoal, MirrorsAreTakenWhereTheyCostLess) {
  CompileOptions slow_launch, slow_links;
  slow_launch.link_costs.device.latency_us = 100;
  slow_links.link_costs.device.bytes_per_us = 100;
  EXPECT_FALSE(is_native(all_gather(4, 16), {4}, slow_launch));
  EXPECT_TRUE(is_native(all_gather(4, 1 << 22), {4}, slow_launch));
  EXPECT_TRUE(is_native(all_gather(4, 16), {4}, slow_links));
  EXPECT_FALSE(is_native(all_gather(4, 1 << 22), {4}, slow_links));
}

TEST(DeviceGoal, RanksThatTheLibraryDoesNotReachTakeMirrors) {
  CompileOptions options{.native_spans_nodes = false, .native_in_nodes = false};
  for (const std::vector<int>& nodes : {std::vector{4}, {2, 2}}) {
    EXPECT_FALSE(is_native(all_gather(4, 1 << 20), nodes, options));
    options.algorithm = "native";
    EXPECT_FALSE(is_native(all_gather(4, 1 << 20), nodes, options));
    options.algorithm = {};
  }
}

TEST(DeviceGoal, ARequestDecides) {
  CompileOptions slow{.algorithm = "native"};
  slow.link_costs.device.latency_us = 100;
  const Goal goal = all_gather(4, 16);
  EXPECT_TRUE(is_native(goal, {4}, slow));
  EXPECT_FALSE(is_native(goal, {4}, {.algorithm = "direct"})) << "an algorithm of the host";
  EXPECT_TRUE(is_native(goal, {4}, {.algorithm = "ring"})) << "none of one node";
}

}  // namespace
}  // namespace kolo
