#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/schedule/codec.h"
#include "compression/compression_method.h"
#include "compression/error_feedback.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {

/// Counters of a compressed bucket, in total and for its last step.
struct GradientCodecStats {
  std::size_t steps = 0;       ///< Ended steps, including skipped ones.
  std::size_t skipped = 0;     ///< Aborted steps.
  std::size_t k = 0;           ///< Most values that this rank may send in a step; 0 in a dense one.
  std::size_t sent_pairs = 0;  ///< Pairs sent, including those to itself.
  std::size_t kept_pairs = 0;  ///< Pairs in all results.
  std::size_t payload_bytes =
      0;  ///< Bytes in use in its payloads to and as an owner, each counted once.
};

/// The codec of one compressed bucket on one rank, with error feedback. The tensors of a codec
/// share payloads, owners and a schedule; the job fixes the codec, independently of bucket sizes.
/// The method defines the content of payloads: its codec implements `encode`, `merge`, `decode` and
/// `find_sent`.
///
/// The step number decides whether a step is dense or sparse. The caller starts the bucket with the
/// schedule of `compile_dense_step` or `compile_sparse`. When the buckets of all codecs of a set
/// are complete, it asks all codecs whether they are finite, and commits all or aborts all:
///
///     start(codec.is_dense() ? dense bucket : sparse bucket)    of every codec
///     all finite() ? commit() : abort()                         every codec, on all ranks
///
/// `finite` is equal on all ranks. If it is false, every rank's tensors hold a NaN or an infinity.
///
/// Threads: one at a time. Steady state allocates nothing.
class GradientCodec : public Codec {
 public:
  GradientCodec(int rank, const ProcessGrid& grid, SparseOptions options);

  const SparseOptions& options() const { return options_; }

  // --- Around a step ----------------------------------------------------------------------------

  /// Number of the next step, from 0; the warm-up depends on it. Set it after loading a checkpoint,
  /// to the same value on all ranks.
  std::size_t step() const { return stats_.steps; }
  void set_step(std::size_t step);
  /// True if the next step is dense.
  bool is_dense() const;
  /// True if the next step is a dense step of the warm-up, in which residuals are zero.
  bool is_warming_up() const { return stats_.steps < options_.warm_up.dense_steps; }

  /// True if a step has run that is neither committed nor aborted.
  bool has_run() const { return step_ != Step::kNone; }
  /// True if all numbers of the completed step were finite on all ranks.
  bool finite() const { return finite_; }
  /// Accepts the step: the values in the result leave the residuals.
  void commit();
  /// Discards the step: no residual has changed.
  void abort();

  // --- State, between steps ---------------------------------------------------------------------

  /// Names and places of the parts of tensors whose residuals this rank holds.
  const std::vector<SparsePart>& parts() const { return layout_.parts; }
  /// Euclidean norm of the residuals of this rank's parts of one tensor.
  double residual_norm(std::size_t tensor) const;
  FeedbackState save() const { return feedback_.save(); }
  /// Errors: as ErrorFeedback::load.
  void load(const FeedbackState& state) { feedback_.load(state); }
  void check_state(const FeedbackState& state) const { feedback_.check_state(state); }
  /// This rank's share of the states of another job's ranks; see `remap`.
  FeedbackShare share(double factor) const;
  /// Discards the residuals; velocities stay.
  void drop_residuals();
  const GradientCodecStats& stats() const { return stats_; }
  /// Makes the next step dense, whatever its number; it leaves no residual. Collective.
  void flush_next() { flushes_ = true; }

  // --- Codec: the executor's --------------------------------------------------------------------

  void fold(const CodecElements& elements) final;
  void inspect(const CodecElements& finished) final;

 protected:
  bool gathers() const { return options_.route == ExchangeRoute::kAllGather; }
  /// Density of this step; empty if it is dense.
  std::optional<double> density() const;
  /// Begins a sparse step with these elements.
  void begin_sparse(const CodecElements& contribution);
  /// Sets the address of each part.
  void locate(const CodecElements& elements);
  std::span<float> part_at(std::size_t part) const;
  /// Replaces a result that some rank found not to be finite, so that `inspect` sees it on all
  /// ranks.
  void spoil();
  /// Writes the pairs that leave the residuals after a sparse step to `sent_`.
  virtual void find_sent() = 0;

  const SparseOptions options_;
  const SparseLayout layout_;
  ErrorFeedback feedback_;
  GradientCodecStats stats_;
  std::vector<Pairs> sent_;  ///< By part, with values as the receivers saw them.

 private:
  enum class Step : std::uint8_t { kNone, kSparse, kDense };

  void begin(Step step);

  std::vector<float*> places_;  // by part
  const std::vector<std::size_t> tensor_offsets_;
  const std::vector<std::size_t> looked_at_;  // first element of every shard of the bucket
  bool finite_ = true;
  bool flushes_ = false;
  Step step_ = Step::kNone;
};

/// Implements CompressionMethod::make_codec.
template <typename Group>
std::unique_ptr<GradientCodec> make_codec(int rank, const ProcessGrid& grid,
                                          const SparseOptions& options) {
  return std::make_unique<Group>(rank, grid, options);
}

}  // namespace kolo
