#include "benchmarks/sim/sim_collective.h"

#include <algorithm>

#include "comm/algorithms/choose.h"
#include "comm/algorithms/registry.h"

namespace kolo::bench {
namespace {

double played_us(Cluster& cluster, const CompileContext& context, const Algorithm& algorithm) {
  return cluster.run({&cluster.schedules(context.goal, context.layout, algorithm)}, {0})[0];
}

/// The schedules of the host are played; copies down and up take their price.
CollectiveTime by_mirrors(Cluster& cluster, const CompileContext& context) {
  BucketLayout host = context.layout;
  host.memory = MemoryKind::kHost;
  const CompileContext by_host{context.goal, host, context.grid, context.options};
  const Choice choice = choose(by_host);
  const double copies_us = mirror_us(context.goal, host.dtype, context.grid.world_size(),
                                     context.options.link_costs.staging);
  return {.algorithm = "mirrors",
          .predicted_us = copies_us + choice.price.us,
          .simulated_us = copies_us + played_us(cluster, by_host, *choice.algorithm)};
}

}  // namespace

std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes) {
  const ProcessGrid& grid = cluster.grid();
  const Goal goal =
      even_goal(parse_goal_kind(collective), grid.world_size(), bytes / sizeof(float));
  const BucketLayout layout{.count = goal.count(),
                            .placement = Placement::kUser,
                            .memory = cluster.spec().memory,
                            .out_of_place = goal.kind != GoalKind::kBroadcast};
  const CompileContext context{goal, layout, grid, cluster.spec().compile};
  std::vector<CollectiveTime> times;
  for (const Choice& each : considered(context)) {
    const bool is_native = each.algorithm == &algorithms::native;
    times.push_back(
        {.algorithm = std::string(each.algorithm->name()),
         .predicted_us = each.price.us,
         .simulated_us = is_native ? each.price.us : played_us(cluster, context, *each.algorithm)});
  }
  if (layout.is_on_device()) times.push_back(by_mirrors(cluster, context));
  std::ranges::min_element(times, {}, &CollectiveTime::predicted_us)->is_choice = true;
  return times;
}

}  // namespace kolo::bench
