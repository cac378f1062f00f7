#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "runtime/engine/gradient_group.h"
#include "runtime/engine/plan_context.h"

namespace kolo {

/// Votes of all ranks on what they measured in the first iterations of a gradient set: what dense
/// steps took, while compression's `auto` is open; else the order in which gradients become ready,
/// if `bucket_order` wants it. A set has one vote at most. It is the last part of an iteration, so
/// no rank has a bucket in flight when it is decided. If something changes, all ranks plan the set
/// anew at the same point of the order of decisions.
///
///   begin ──► auto is open: 20 iterations ──► vote on steps ──► settled for good
///     ├─────► order counts: 4 iterations ───► vote on buckets ──────▲
///     └─────► neither ──────────────────────────────────────────────┘
///
/// Ranks vote for the buckets that their own order leads to, and for 0 if those are not better.
/// Only buckets that all ranks vote for are planned, so no order need be exchanged.
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
  struct Vote {
    std::shared_ptr<GradientGroup> group;
    std::optional<std::vector<std::size_t>> order = {};  // on it; else on steps
  };

  void cast(const std::shared_ptr<GradientGroup>& group);
  void cast_order(const std::shared_ptr<GradientGroup>& group);
  void settle(GradientGroup& group, const DenseSteps& measured);
  void settle_order(GradientGroup& group, const std::vector<std::size_t>& order,
                    const Frame& decision);

  Coordinator& coordinator_;
  const PlanContext context_;
  const Clock& step_clock_;
  std::map<Topic, Vote> undecided_;
};

}  // namespace kolo
