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
#include "runtime/gradients/gradient_group.h"

namespace kolo {

/// The gradient sets of a job, by name: agrees with other ranks on each registration, plans it, and
/// keeps what it replaces for as long as it is needed.
///
/// While compression's `auto` is open for a set, all ranks vote on what dense steps took in its
/// first iterations; a set has one vote at most. It is the last part of an iteration, so no rank
/// has a bucket in flight when it is decided. If something changes, all ranks plan the set anew at
/// the same point of the order of decisions.
///
/// Threads: the engine's. Errors: those of the plan that may be this rank's alone.
class GradientSets {
 public:
  /// `step_clock` tells how long steps take. Everything outlives it.
  GradientSets(Coordinator& coordinator, const PlanContext& context, BucketRunner& runner,
               const Clock& step_clock, Activity& activity)
      : coordinator_(coordinator),
        context_(context),
        runner_(runner),
        step_clock_(step_clock),
        activity_(activity) {}

  void submit(const std::shared_ptr<GradientGroup>& group);
  /// The gradients of one bucket are all computed.
  void submit(GradientGroup& group, std::size_t bucket);

  /// Takes a decision. Returns false if it is about none of these.
  bool accept(const Frame& decision);
  bool reject(const Topic& topic, const Error& error);

  /// The name of a set of which gradients of this rank are marked, and that no `wait` has ended.
  std::optional<std::string> marked() const;
  /// Nothing is proposed or under way.
  bool is_idle() const;
  /// Begins and ends iterations without data of this rank, as invited. Returns whether none is
  /// left.
  bool move_stand_ins();

  /// The job has failed: so does every set.
  void fail_all(const Error& error) noexcept;
  /// After that: the executor and the transport touch no memory any more.
  void stop_all() noexcept;

 private:
  void plan(const std::shared_ptr<GradientGroup>& group);
  void begin(const std::shared_ptr<GradientGroup>& group);
  void cast_vote(const std::shared_ptr<GradientGroup>& group);
  void settle(GradientGroup& group, const DenseSteps& measured);
  void replace(const std::string& name);

  Coordinator& coordinator_;
  const PlanContext& context_;
  BucketRunner& runner_;
  const Clock& step_clock_;
  Activity& activity_;
  std::map<std::string, std::shared_ptr<GradientGroup>> agreed_;  // by name
  std::map<Topic, std::shared_ptr<GradientGroup>> proposed_;
  std::map<Topic, std::shared_ptr<GradientGroup>> undecided_;  // votes
  std::vector<std::shared_ptr<GradientGroup>> failed_;         // replaced; still own their buckets
};

}  // namespace kolo
