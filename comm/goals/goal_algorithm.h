#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

#include "comm/collective/compile_options.h"
#include "comm/cost/host_links.h"
#include "comm/schedule/goal.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// The arguments of a schedule for a goal. Refers to values that outlive it.
struct GoalContext {
  const ProcessGrid& grid;
  const CompileOptions& options;
};

/// A goal, as far as it decides what an algorithm costs: parts are taken to be equal.
struct GoalSize {
  GoalKind kind = GoalKind::kOther;
  double bytes = 0;                ///< Of all parts, in the bucket's dtype.
  bool sums_in_one_place = false;  ///< Sums are made of the contributions of all ranks at once.
  double tensors = 1;              ///< Each may take messages of its own.
};

/// One algorithm for goals: its name, its steps, its price and its limits. Each is defined in the
/// file that defines its steps; see goal_registry.h for how it is found, and the table there.
///
/// Those for host memory make the same sums: those of each node in the
/// order of ranks, then the sum of these in the order of nodes; 16-bit floats in one place, in the
/// order of ranks. So no bit depends on which of them runs. In device memory a library sums in an
/// order of its own.
struct GoalAlgorithm {
  std::string_view name;
  /// Whether it reaches such goals, on nodes like these.
  bool (*serves)(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid);
  /// Appends the steps of the builder's rank. All ranks call it with equal arguments. Pure.
  void (*append)(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context);
  /// The predicted time in microseconds until the slowest rank is done; infinite for a goal that
  /// needs more memory than it may use, or a group of all ranks that the device's library has not.
  /// Pure.
  double (*predict_us)(const HostLinks& links, const GoalSize& size, const CompileOptions& options);
};

/// All algorithms for goals, preferred first among equals. One line adds one: the file that defines
/// the steps of NAME defines `goal_algorithms::NAME`.
#define KOLO_GOAL_ALGORITHMS(ENTRY) \
  ENTRY(direct)                     \
  ENTRY(tree)                       \
  ENTRY(bruck)                      \
  ENTRY(ring)                       \
  ENTRY(scatter_allgather)          \
  ENTRY(pairwise)                   \
  ENTRY(native)

namespace goal_algorithms {
#define KOLO_DECLARE_GOAL_ALGORITHM(name) extern const GoalAlgorithm name;
KOLO_GOAL_ALGORITHMS(KOLO_DECLARE_GOAL_ALGORITHM)
#undef KOLO_DECLARE_GOAL_ALGORITHM
}  // namespace goal_algorithms

}  // namespace kolo
