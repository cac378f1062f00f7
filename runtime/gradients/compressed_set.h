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
#include "compression/gradient_codec.h"
#include "fusion/bucket_planner.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/gradients/compression_state.h"
#include "runtime/observe/timeline.h"
#include "runtime/options/plan_summary.h"

namespace kolo {

/// A compressed bucket at run time: two schedules for the same tensors, with one codec.
struct CompressedBucket {
  CompressedTensors tensors;
  std::string name;
  PlannedBucket planned;
  std::shared_ptr<GradientCodec> codec;
  BucketId sparse = 0;
  BucketId dense = 0;
  double predicted_us = 0;   ///< Predicted time of a sparse step.
  Timeline::Span span = {};  ///< The last step on this rank.

  BucketId next() const { return codec->is_dense() ? dense : sparse; }
};

/// The gradients of a set that are sent in compressed buckets. Their buckets have a separate range
/// of numbers, so that the dense ones of the set can be planned again without changing a residual.
///
/// Threads: as `GradientSetState`. `end_step` and the functions after it belong to the user's
/// threads,
///          under the lock of the iterations or between them; the others to the engine's thread.
class CompressedSet {
 public:
  /// The number of the first bucket; dense buckets have lower numbers.
  static constexpr std::size_t kFirst = std::size_t{1} << 32;

  /// Plans groups of the gradients that have a `compression` and are in no tensors yet. The groups
  /// begin with step number `step`; `views` are the memory of all gradients. Called between
  /// iterations, or as the last part of one.
  void plan(std::span<const GradientSpec> gradients, std::span<const BufferView> views, ReduceOp op,
            BucketOwner& owner, const PlanContext& context, std::size_t step = 0);

  /// Number of buckets that an iteration runs.
  std::size_t size() const { return buckets_.size(); }
  /// The schedule that bucket `number` runs in this iteration, dense or sparse.
  BucketId next(std::size_t number) const { return buckets_[number - kFirst].next(); }
  /// All schedules of all buckets.
  std::vector<BucketId> ids() const;
  /// A line per bucket, as part of the plan's identity.
  std::string describe() const;

  /// Record the times at which bucket `number` began and ended this iteration's step.
  void started(std::size_t number, TimePoint now) { buckets_[number - kFirst].span.began = now; }
  void finished(std::size_t number, TimePoint now) { buckets_[number - kFirst].span.ended = now; }
  /// Begin and end of the i-th bucket's step.
  Timeline::Span span(std::size_t i) const { return buckets_[i].span; }

  bool has(std::size_t gradient) const { return gradient < has_.size() && has_[gradient]; }
  /// Appends its buckets to a plan whose buckets do not contain its gradients.
  void append_to(Plan& plan) const;

  /// Whether every number that any rank sent in this iteration, here or in the set's other
  /// gradients, was finite. Called after all buckets of the iteration. Threads: the user's, without
  /// the lock of the iterations. Cost: one read of the other gradients in host memory; nothing
  /// without groups.
  bool is_finite() const;
  /// Called after `is_finite`: accepts the step in all groups that took part, or discards it in
  /// all.
  void end_step(bool accepted);

  /// Makes the next step send all residuals.
  void flush_next();
  /// Norm of the residual on this rank; empty if the tensor is in no tensors.
  std::optional<double> residual_norm(std::string_view tensor) const;
  std::vector<CompressionStats> stats() const;
  /// The momentum that Kolo applies; 0 if it applies none.
  float corrected_momentum(std::size_t gradient) const;
  bool is_warming_up(std::size_t gradient) const;

  /// Save this rank's step number, residuals and velocities to `state`, and restore them. Called
  /// between iterations. Errors: KoloError(kData) as `ErrorFeedback::load`; then nothing has
  /// changed.
  void save(CompressionState& state) const;
  void load(const CompressionState& state);
  /// This rank's share of the states of all ranks of another job, in rank order; see `remap`.
  FeedbackState remap_from(std::span<const FeedbackState> old_ranks, double factor) const;
  /// Discards residuals; returns their norm.
  double drop_residuals();

 private:
  void find_others();
  /// The bucket of a gradient; null if it is in none.
  const CompressedBucket* bucket_of(std::size_t gradient) const;

  std::vector<CompressedBucket> buckets_;
  std::vector<bool> has_;           // whether it has the gradient, by index
  std::vector<BufferView> views_;   // memory of all gradients
  std::vector<BufferView> others_;  // of gradients that are sent dense in this iteration
};

}  // namespace kolo
