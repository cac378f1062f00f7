#include "benchmarks/sim/sim_collective.h"

#include <cmath>

#include "comm/goals/device/device_goal.h"
#include "comm/goals/even_goal.h"

namespace kolo::bench {
namespace {

double played_us(Cluster& cluster, const Goal& goal, const BucketLayout& layout,
                 const GoalAlgorithm& algorithm) {
  return cluster.run({&cluster.schedules(goal, layout, algorithm)}, {0})[0];
}

/// The schedules of the host are played; copies down and up take their price.
CollectiveTime by_mirrors(Cluster& cluster, const Goal& goal, BucketLayout layout,
                          const GoalContext& context) {
  layout.memory = MemoryKind::kHost;
  const GoalAlgorithm& algorithm = resolve_goal_algorithm(goal, layout, context, {});
  const double price_us = predict_mirror_us(goal, layout, context, {});
  const double copies_us = price_us - predict_us(algorithm, goal, layout, context);
  return {.algorithm = "mirrors",
          .predicted_us = price_us,
          .simulated_us = copies_us + played_us(cluster, goal, layout, algorithm)};
}

}  // namespace

std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes) {
  const ProcessGrid& grid = cluster.grid();
  const Goal goal = even_goal(collective, grid.world_size(), bytes / sizeof(float));
  const BucketLayout layout{.count = goal.count(),
                            .placement = Placement::kUser,
                            .memory = cluster.spec().memory,
                            .out_of_place = goal.kind != GoalKind::kBroadcast};
  const GoalContext context{grid, cluster.spec().compile};
  const GoalAlgorithm* const choice = layout.is_on_device()
                                          ? choose_device_goal(goal, layout, context, {})
                                          : &resolve_goal_algorithm(goal, layout, context, {});
  std::vector<CollectiveTime> times;
  for (const GoalAlgorithm* each : goal_algorithms_of_all()) {
    if (!each->serves(goal, layout, grid)) continue;
    const double predicted_us = predict_us(*each, goal, layout, context);
    if (!std::isfinite(predicted_us)) continue;
    times.push_back({.algorithm = std::string(each->name),
                     .is_choice = each == choice,
                     .predicted_us = predicted_us,
                     .simulated_us = each == &goal_algorithms::native
                                         ? predicted_us
                                         : played_us(cluster, goal, layout, *each)});
  }
  if (layout.is_on_device()) {
    times.push_back(by_mirrors(cluster, goal, layout, context));
    times.back().is_choice = choice == nullptr;
  }
  return times;
}

}  // namespace kolo::bench
