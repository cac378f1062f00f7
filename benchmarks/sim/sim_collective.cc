#include "benchmarks/sim/sim_collective.h"

#include <cmath>

#include "comm/goals/even_goal.h"

namespace kolo::bench {

std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes) {
  const ProcessGrid& grid = cluster.grid();
  const Goal goal = even_goal(collective, grid.world_size(), bytes / sizeof(float));
  const BucketLayout layout{.count = goal.count(),
                            .placement = Placement::kUser,
                            .out_of_place = goal.kind != GoalKind::kBroadcast};
  const GoalContext context{grid, cluster.spec().compile};
  const GoalAlgorithm& choice = resolve_goal_algorithm(goal, layout, context, {});
  std::vector<CollectiveTime> times;
  for (const GoalAlgorithm* each : goal_algorithms_of_all()) {
    if (!each->serves(goal, layout, grid)) continue;
    const double predicted_us = predict_us(*each, goal, layout, context);
    if (!std::isfinite(predicted_us)) continue;
    const SimulatorSchedules& schedules = cluster.schedules(goal, layout, *each);
    times.push_back({.algorithm = std::string(each->name),
                     .is_choice = each == &choice,
                     .predicted_us = predicted_us,
                     .simulated_us = cluster.run({&schedules}, {0})[0]});
  }
  return times;
}

}  // namespace kolo::bench
