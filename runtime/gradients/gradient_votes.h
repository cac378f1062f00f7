#pragma once

#include <map>
#include <memory>

#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/gradient_group.h"

namespace kolo {

/// Votes of all ranks on what dense steps took in the first iterations of a gradient set, while
/// compression's `auto` is open. A set has one vote at most. It is the last part of an iteration,
/// so no rank has a bucket in flight when it is decided. If something changes, all ranks plan the
/// set anew at the same point of the order of decisions.
///
/// Threads: the engine's. Errors: those of the plan, which end the job.
class GradientVotes {
 public:
  /// `step_clock` tells how long steps take. Everything outlives it.
  GradientVotes(Coordinator& coordinator, const PlanContext& context, const Clock& step_clock)
      : coordinator_(coordinator), context_(context), step_clock_(step_clock) {}

  /// A set was agreed and planned: its first iteration begins and its registration completes.
  void begin(const std::shared_ptr<GradientGroup>& group);

  /// Takes a decision. Returns false if it is none of these votes.
  bool accept(const Frame& decision);
  bool reject(const Topic& topic, const Error& error);

  /// The job has failed: nothing is decided any more.
  void clear() { undecided_.clear(); }

 private:
  void cast(const std::shared_ptr<GradientGroup>& group);
  void settle(GradientGroup& group, const DenseSteps& measured);

  Coordinator& coordinator_;
  const PlanContext context_;
  const Clock& step_clock_;
  std::map<Topic, std::shared_ptr<GradientGroup>> undecided_;
};

}  // namespace kolo
