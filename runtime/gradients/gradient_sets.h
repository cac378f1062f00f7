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
#include "runtime/gradients/gradient_plan.h"
#include "runtime/gradients/gradient_set_state.h"

namespace kolo {

/// The gradient sets of a job, by name. Agrees with other ranks on each registration and its plan,
/// and keeps a replaced set for as long as it is needed.
///
/// While compression `auto` is open for a set, all ranks vote on the times of dense steps in its
/// first iterations; a set has at most one vote. The vote is the last part of an iteration, so no
/// rank has a bucket in flight at its decision. If the decision changes the plan, all ranks plan
/// the set again at the same point of the order of decisions.
///
/// Threads: the engine's. Errors: errors of planning, which other ranks may not have.
class GradientSets {
 public:
  /// `step_clock` times steps. All arguments must outlive this object.
  GradientSets(Coordinator& coordinator, const PlanContext& context, BucketRunner& runner,
               const Clock& step_clock, Activity& activity)
      : coordinator_(coordinator),
        context_(context),
        runner_(runner),
        step_clock_(step_clock),
        activity_(activity) {}

  void submit(const std::shared_ptr<GradientSetState>& group);
  /// Called when all gradients of a bucket are ready.
  void submit(GradientSetState& group, std::size_t bucket);

  /// Handle a decision of all ranks. Return false if the decision concerns no gradient set.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// Returns the name of a set with marked gradients that no `wait` has completed, if any.
  std::optional<std::string> marked() const;
  /// Returns true if no registration is proposed and no iteration is in flight.
  bool is_idle() const;
  /// Begins and ends the iterations that this rank, having joined, runs without data. Returns
  /// whether none is left.
  bool move_stand_ins();
  /// Returns whether such an iteration awaits the device, which does not wake the driving thread.
  bool awaits_device() const;

  /// Fails every set, because the job has failed.
  void fail_all(const Error& error) noexcept;
  /// Called after `fail_all`, when the executor and the transport no longer touch memory.
  void stop_all() noexcept;

 private:
  void plan(const ProposalKey& key, const std::shared_ptr<GradientSetState>& group);
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
  std::map<ProposalKey, GradientDraft> drafts_;  // of proposed sets that can be planned
  std::map<ProposalKey, std::shared_ptr<GradientSetState>> undecided_;  // votes
  /// Failed sets whose name was registered again. They still own their buckets.
  std::vector<std::shared_ptr<GradientSetState>> failed_;
};

}  // namespace kolo
