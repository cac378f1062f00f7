#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "runtime/buckets/bucket_runner.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/gradient_set_state.h"

namespace kolo {

/// The gradient sets of a job, by name. Agrees with other ranks on each registration, plans it, and
/// keeps a replaced set for as long as it is needed.
///
/// While compression `auto` is open for a set, all ranks vote on the times of dense steps in its
/// first iterations; a set has at most one vote. The vote is the last part of an iteration, so no
/// rank has a bucket in flight when it is decided. If the decision changes the plan, all ranks plan
/// the set again at the same point of the order of decisions.
///
/// Threads: the engine's. Errors: errors of planning that may be this rank's alone.
class GradientSets {
 public:
  /// `step_clock` times steps. All arguments outlive it.
  GradientSets(Coordinator& coordinator, const PlanContext& context, BucketRunner& runner,
               const Clock& step_clock, Activity& activity)
      : coordinator_(coordinator),
        context_(context),
        runner_(runner),
        step_clock_(step_clock),
        activity_(activity) {}

  void submit(const std::shared_ptr<GradientSetState>& group);
  /// All gradients of one bucket are ready.
  void submit(GradientSetState& group, std::size_t bucket);

  /// Handles a decision. Returns false if it does not concern gradient sets.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// Name of a set in which this rank has marked gradients that no `wait` has completed.
  std::optional<std::string> marked() const;
  /// No registration is proposed and no iteration is in progress.
  bool is_idle() const;
  /// Begins and ends iterations without data of this rank, as peers invite it. Returns whether none
  /// is left.
  bool move_stand_ins();

  /// The job has failed, and with it every set.
  void fail_all(const Error& error) noexcept;
  /// Called after `fail_all`, when the executor and the transport no longer touch memory.
  void stop_all() noexcept;

 private:
  void plan(const std::shared_ptr<GradientSetState>& group);
  void begin(const std::shared_ptr<GradientSetState>& group);
  void cast_vote(const std::shared_ptr<GradientSetState>& group);
  void settle(GradientSetState& group, const DenseSteps& measured);
  void replace(const std::string& name);

  Coordinator& coordinator_;
  const PlanContext& context_;
  BucketRunner& runner_;
  const Clock& step_clock_;
  Activity& activity_;
  std::map<std::string, std::shared_ptr<GradientSetState>> agreed_;  // by name
  std::map<ProposalKey, std::shared_ptr<GradientSetState>> proposed_;
  std::map<ProposalKey, std::shared_ptr<GradientSetState>> undecided_;  // votes
  /// Replaced; they still own their buckets.
  std::vector<std::shared_ptr<GradientSetState>> failed_;
};

}  // namespace kolo
