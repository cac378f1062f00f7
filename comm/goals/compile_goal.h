#pragma once

#include "comm/goals/goal_registry.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// The schedule of `rank` for a goal that is not an all-reduce, in host memory. Tensors that are
/// not in place have the bucket's dtype: Placement::kUser.
///
/// Before: goal, layout, grid, options and request are equal on all ranks; the goal has as many
///         elements as the layout. Threads: pure; any.
/// Errors: UsageError if no algorithm serves the goal with this layout.
Schedule compile_goal(int rank, const Goal& goal, const BucketLayout& layout,
                      const ProcessGrid& grid, const CompileOptions& options,
                      const GoalAlgorithmRequest& request = {});

}  // namespace kolo
