#pragma once

#include <map>
#include <memory>

#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "runtime/calibration/calibration.h"
#include "runtime/engine/gradient_group.h"
#include "runtime/engine/gradient_tuner.h"
#include "runtime/plan/plan_context.h"

namespace kolo {

/// Votes of all ranks on how a gradient set travels from now on: on what its dense steps took,
/// while compression's `auto` is open; then, with autotune, on sizes. A vote is the last part of an
/// iteration, so nobody is in one when it is decided; the set is then planned anew, if it travels
/// in another way, at the same point of the order of decisions on all ranks.
///
///   begin ──► auto is open: 20 iterations ──► vote on steps ──┐
///     └─────► it is not ──────────────────────────────────────┴──► autotune: vote on sizes ◄─┐
///                                                                    └─── 16 iterations ─────┘
///
/// Threads: the engine's. Errors: none; what fails to be planned fails the set, and ends the job.
class GradientVotes {
 public:
  /// `step_clock` tells how long steps take. Everything outlives it.
  GradientVotes(Coordinator& coordinator, const PlanContext& context,
                const Calibration& calibration, const Clock& step_clock)
      : coordinator_(coordinator),
        context_(context),
        calibration_(calibration),
        step_clock_(step_clock) {}

  /// A set was agreed and planned. Its first iteration begins, after a vote on sizes if that is the
  /// first one; then its registration completes.
  void begin(const std::shared_ptr<GradientGroup>& group);
  /// All other parts of an iteration that ends with a vote are done here.
  void cast(const std::shared_ptr<GradientGroup>& group);

  /// Takes a decision. Returns false if it is none of these votes.
  bool accept(const Frame& decision);
  bool reject(const Topic& topic, const Error& error);

  /// Another set takes the place of this one.
  void forget(const GradientGroup& group) { tuners_.erase(&group); }
  /// The job has failed: nothing is decided any more.
  void clear() { undecided_.clear(); }

 private:
  bool has_votes_on_sizes(const GradientGroup& group) const;
  void vote_on_sizes(const std::shared_ptr<GradientGroup>& group);
  SizeDecision decide_sizes(GradientGroup& group);
  void resize(GradientGroup& group, const SizeDecision& decision);
  void vote_on_steps(const std::shared_ptr<GradientGroup>& group);
  void settle(const std::shared_ptr<GradientGroup>& group, const DenseSteps& measured);

  Coordinator& coordinator_;
  const PlanContext context_;
  const Calibration& calibration_;
  const Clock& step_clock_;
  std::map<Topic, std::shared_ptr<GradientGroup>> undecided_;
  std::map<const GradientGroup*, GradientTuner> tuners_;  // rank 0's, of sets that are not settled
};

}  // namespace kolo
