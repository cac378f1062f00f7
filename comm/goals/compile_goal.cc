#include "comm/goals/compile_goal.h"

#include <string>
#include <utility>

#include "comm/collective/host_pieces.h"

namespace kolo {

Schedule compile_goal(int rank, const Goal& goal, const BucketLayout& layout,
                      const ProcessGrid& grid, const CompileOptions& options,
                      const GoalAlgorithmRequest& request) {
  const GoalContext context{grid, options};
  const GoalAlgorithm& algorithm = resolve_goal_algorithm(goal, layout, context, request);
  ScheduleBuilder builder(rank, std::string(algorithm.name), layout, {},
                          window_width(layout, grid, options));
  algorithm.append(builder, goal, context);
  Schedule schedule = std::move(builder).build();
  schedule.eager = may_be_eager(layout, grid, options);
  schedule.mutual = goal.is_mutual(grid.world_size());
  return schedule;
}

}  // namespace kolo
