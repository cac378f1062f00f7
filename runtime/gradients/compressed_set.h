#pragma once

#include <cstddef>
#include <cstdint>
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
  Timeline::Span span = {};  ///< Time of the last step on this rank.

  BucketId next() const { return codec->is_dense() ? dense : sparse; }
};

/// The compressed buckets of a gradient set. Their numbers do not overlap those of its dense
/// (uncompressed) buckets, so that planning dense buckets again leaves residuals alone.
///
/// Threads: the engine's thread. A user's thread calls `end_step` and the functions after it, while
///          it holds the lock of the iterations or while no iteration runs.
class CompressedSet {
 public:
  /// The number of the first bucket; dense buckets have lower numbers.
  static constexpr std::size_t kFirst = std::size_t{1} << 32;

  /// Plans compressed buckets for the gradients that have a `compression` and no compressed bucket
  /// yet. The new buckets begin with step number `step`; `views` are the memory of all gradients,
  /// and `ready` their events, null in host memory. Called between iterations, or as the last part
  /// of an iteration.
  void plan(std::span<const GradientSpec> gradients, std::span<const BufferView> views,
            std::span<const Event* const> ready, ReduceOp op, BucketOwner& owner,
            const PlanContext& context, std::size_t step = 0);

  /// Sets the memory of all gradients again, once dense gradients in device memory have theirs.
  void placed(std::span<const BufferView> views);

  /// Returns the number of buckets that an iteration runs.
  std::size_t size() const { return buckets_.size(); }
  /// Returns the id, dense or sparse, that bucket `number` uses in this iteration.
  BucketId next(std::size_t number) const { return buckets_[number - kFirst].next(); }
  /// Returns the ids of all buckets, dense and sparse.
  std::vector<BucketId> ids() const;
  /// Describes each bucket in a line, for the hash of the plan.
  std::string describe() const;

  /// Record the times at which bucket `number` began and ended this iteration's step.
  void started(std::size_t number, TimePoint now) { buckets_[number - kFirst].span.began = now; }
  void finished(std::size_t number, TimePoint now) { buckets_[number - kFirst].span.ended = now; }
  /// Returns begin and end of the last step of the i-th bucket.
  Timeline::Span span(std::size_t i) const { return buckets_[i].span; }

  bool has(std::size_t gradient) const { return gradient < has_.size() && has_[gradient]; }
  /// Appends the compressed buckets to a plan that has only the dense ones.
  void append_to(Plan& plan) const;

  // The next three functions are called in this order, after all buckets of an iteration are
  // finished. Threads: one, without the lock of the iterations.

  /// Begins to check the dense gradients in device memory, in the first call of an iteration.
  /// Returns whether the check is over, so that `is_finite` does not wait. Never blocks.
  bool advance_check();
  /// Returns whether all numbers that ranks sent in this iteration, compressed or dense, were
  /// finite. Cost: one read of the dense gradients, for which it waits if they are in device
  /// memory; nothing without compressed buckets.
  bool is_finite();
  /// Called after `is_finite`. Accepts the step in all compressed buckets that ran, or discards it.
  void end_step(bool accepted);

  /// Makes the next step send all residuals.
  void flush_next();
  /// Returns the Euclidean norm of a residual on this rank; empty if it is not compressed.
  std::optional<double> residual_norm(std::string_view tensor) const;
  /// With Norms::kInHostMemory, the norms of device memory, which would be downloaded, are NaN.
  enum class Norms : std::uint8_t { kAll, kInHostMemory };
  std::vector<CompressionStats> stats(Norms norms = Norms::kAll) const;
  /// Returns the momentum factor that Kolo applies to the gradient; 0 if it applies none.
  float corrected_momentum(std::size_t gradient) const;
  bool is_warming_up(std::size_t gradient) const;

  /// Save this rank's step number, residuals and velocities to `state`, and restore them. Called
  /// between iterations. Errors: KoloError(kData) as `ErrorFeedback::load`, without any change.
  void save(CompressionState& state) const;
  void load(const CompressionState& state);
  /// Returns this rank's share of all ranks' states of a former job, in rank order; see `remap`.
  /// Errors: also KoloError(kData) for a residual or a velocity that no bucket of this set takes.
  FeedbackState remap_from(std::span<const FeedbackState> old_ranks, double factor) const;
  /// Discards residuals; returns their norm.
  double drop_residuals();

 private:
  /// The check of dense gradients in device memory.
  struct DeviceCheck {
    explicit DeviceCheck(std::shared_ptr<FeedbackStream> its_stream);

    std::shared_ptr<FeedbackStream> on;
    DeviceFlag flag;
    std::unique_ptr<Event> ended;
    bool has_begun = false;  ///< In this iteration.
  };

  void find_others();
  /// Returns whether there are dense gradients to check in device memory.
  bool checks_device() const;
  /// Returns the compressed bucket of a gradient; null if the gradient is sent dense.
  const CompressedBucket* bucket_of(std::size_t gradient) const;

  std::vector<CompressedBucket> buckets_;
  std::vector<bool> has_;                      // by gradient: whether it is compressed
  std::vector<BufferView> views_;              // memory of all gradients
  std::vector<BufferView> others_;             // memory of gradients in dense buckets
  std::unique_ptr<DeviceCheck> device_check_;  // null without gradients in device memory
};

}  // namespace kolo
