#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/clock.h"
#include "compression/compressed_group.h"
#include "fusion/bucket_planner.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/gradients/compression_state.h"
#include "runtime/observe/timeline.h"
#include "runtime/options/plan_summary.h"

namespace kolo {

/// A compression group as it runs: two schedules for the same tensors, with one codec.
struct CompressedBucket {
  PlannedGroup group;
  std::string name;
  PlannedBucket planned;
  std::shared_ptr<CompressedGroup> codec;
  BucketId sparse = 0;
  BucketId dense = 0;
  double predicted_us = 0;   ///< For a sparse step.
  Timeline::Span span = {};  ///< The last step on this rank.

  BucketId next() const { return codec->is_dense() ? dense : sparse; }
};

/// The gradients of a set that travel in compression groups. Its buckets have numbers of their own
/// kind, so that the dense ones of the set can be planned anew without a residual noticing.
///
/// Threads: as `GradientGroup`: `end_step` and what follows it are the user's, under the lock of
///          its iterations or between them; the rest is the engine's.
class CompressedSet {
 public:
  /// The number of the first bucket; those of dense buckets are below.
  static constexpr std::size_t kFirst = std::size_t{1} << 32;

  /// Plans groups of the gradients that have a `compression` and are in none yet, which begin with
  /// step number `step`; `views` are the places of all. Between iterations, or as the last part of
  /// one.
  void plan(std::span<const GradientSpec> gradients, std::span<const BufferView> views, ReduceOp op,
            BucketOwner& owner, const PlanContext& context, std::size_t step = 0);

  /// How many buckets an iteration runs.
  std::size_t size() const { return buckets_.size(); }
  /// Which of both schedules bucket `number` runs in this iteration.
  BucketId next(std::size_t number) const { return buckets_[number - kFirst].next(); }
  /// All schedules of all buckets.
  std::vector<BucketId> ids() const;
  /// A line per bucket, as part of the plan's identity.
  std::string describe() const;

  /// Record when bucket `number` began and ended this iteration's step.
  void started(std::size_t number, TimePoint now) { buckets_[number - kFirst].span.began = now; }
  void finished(std::size_t number, TimePoint now) { buckets_[number - kFirst].span.ended = now; }
  /// Both times of the i-th bucket.
  Timeline::Span span(std::size_t i) const { return buckets_[i].span; }

  bool has(std::size_t gradient) const { return gradient < has_.size() && has_[gradient]; }
  /// Appends its buckets to those of a plan, in which its gradients are in none.
  void append_to(Plan& plan) const;

  /// After all buckets of an iteration: whether every number that any rank sent, here or in the
  /// set's other gradients, was finite. Threads: the user's, without the lock of the iterations.
  /// Cost: one read of the other gradients that are in host memory; nothing without groups.
  bool is_finite() const;
  /// Then: accepts the step in all groups that were in it, or forgets it in all.
  void end_step(bool accepted);

  /// The next step carries all residuals along.
  void flush_next();
  /// The norm on this rank; nothing if the tensor is in no group.
  std::optional<double> residual_norm(std::string_view tensor) const;
  std::vector<CompressionStats> stats() const;
  /// 0: no momentum is corrected.
  float corrected_momentum(std::size_t gradient) const;
  bool is_warming_up(std::size_t gradient) const;

  /// Copy this rank's step number, residuals and velocities to `state` and back. Between
  /// iterations. Errors: KoloError(kData) as `ErrorFeedback::load`; nothing has changed then.
  void save(CompressionState& state) const;
  void load(const CompressionState& state);
  /// This rank's share of the states of all ranks of another job, in order; see `remap`.
  FeedbackState remap_from(std::span<const FeedbackState> old_ranks, double factor) const;
  /// Forgets residuals; returns their norm.
  double drop_residuals();

 private:
  void find_others();
  /// The one that a gradient is in; null if it is in none.
  const CompressedBucket* bucket_of(std::size_t gradient) const;

  std::vector<CompressedBucket> buckets_;
  std::vector<bool> has_;           // by gradient
  std::vector<BufferView> views_;   // places of all gradients
  std::vector<BufferView> others_;  // of those that travel dense in this iteration
};

}  // namespace kolo
