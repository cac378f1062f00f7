#pragma once

#include <map>
#include <memory>

#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "runtime/engine/gradient_group.h"
#include "runtime/engine/plan_context.h"

namespace kolo {

/// Votes of all ranks on what the dense steps of a gradient set took, while compression's `auto` is
/// open. The vote is the last part of an iteration, so no rank has a bucket in flight when it is
/// decided. If something is to be compressed, all ranks plan the set anew at the same point of the
/// order of decisions.
///
///   begin ──► auto is open: 20 iterations ──► vote on steps ──► settled for good
///     └─────► auto is not open ─────────────────────────────────────▲
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
