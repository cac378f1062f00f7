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

/// Counters of a compressed bucket: `steps` and `skipped` in total, the others for the last step.
struct GradientCodecStats {
  std::size_t steps = 0;          ///< Ended steps, including aborted ones.
  std::size_t skipped = 0;        ///< Aborted steps.
  std::size_t k = 0;              ///< Pairs that this rank selected; 0 in a dense step.
  std::size_t sent_pairs = 0;     ///< Pairs that this rank sent, including pairs to itself.
  std::size_t kept_pairs = 0;     ///< Pairs in the results of all owners.
  std::size_t payload_bytes = 0;  ///< Used bytes of the payloads that this rank encoded, as
                                  ///< contributor and as owner; each counts once.
};

/// The codec of one compressed bucket on one rank, with error feedback. All tensors of the bucket
/// share payloads, owners and schedules. The bucket is fixed for the job and does not depend on the
/// sizes of other buckets. The method defines the content of payloads: its codec implements
/// `encode`, `merge`, `decode` and `find_sent`.
///
/// The step number determines whether a step is dense or sparse. The caller starts the bucket with
/// the schedule of `compile_dense_step` or `compile_sparse`. When all compressed buckets of a set
/// are complete, the caller commits the step if all codecs are finite, or aborts it:
///
///     start(codec.is_dense() ? dense bucket : sparse bucket)    for every codec
///     all finite() ? commit() : abort()                         for every codec, on all ranks
///
/// `finite` is equal on all ranks. If it is false, every rank's tensors hold a NaN or an infinity.
///
/// Threads: one at a time. Steady state allocates nothing.
class GradientCodec : public Codec {
 public:
  GradientCodec(int rank, const ProcessGrid& grid, SparseOptions options);

  const SparseOptions& options() const { return options_; }

  // --- Around a step ----------------------------------------------------------------------------

  /// The number of the next step, from 0, on which the warm-up depends. After loading a checkpoint,
  /// set it to the same value on all ranks.
  std::size_t step() const { return stats_.steps; }
  void set_step(std::size_t step);
  /// True if the next step is dense.
  bool is_dense() const;
  /// True if the next step is a dense step of the warm-up, in which residuals are zero.
  bool is_warming_up() const { return stats_.steps < options_.warm_up.dense_steps; }

  /// True if a step has run and is neither committed nor aborted.
  bool has_run() const { return step_ != Step::kNone; }
  /// True if all numbers of the completed step were finite on all ranks.
  bool finite() const { return verdict_ ? !verdict_->is_raised() : finite_; }
  /// Accepts the step: values that are part of the result are subtracted from the residuals.
  void commit();
  /// Discards the step; residuals stay unchanged.
  void abort();

  // --- State, between steps ---------------------------------------------------------------------

  /// Returns the parts of tensors whose residuals this rank holds.
  const std::vector<SparsePart>& parts() const { return layout_.parts; }
  /// Returns the Euclidean norm of the residuals of this rank's parts of one tensor.
  double residual_norm(std::size_t tensor) const;
  /// Returns the Euclidean norm of numbers in the memory of the bucket's tensors.
  double norm(std::span<const float> numbers) const { return feedback_.norm(numbers); }
  FeedbackState save() const;
  /// Errors: as ErrorFeedback::load; and KoloError(kData) if the state has residuals of sums that
  /// this rank does not own.
  void load(const FeedbackState& state);
  void check_state(const FeedbackState& state) const;
  /// Returns the part of another job's state that this rank receives; see `remap`.
  FeedbackShare share(double factor) const;
  /// Sets all residuals to zero; velocities stay.
  void drop_residuals();
  const GradientCodecStats& stats() const { return stats_; }
  /// Makes the next step dense, whatever its number, so that it sends all residuals. Collective:
  /// all ranks call it.
  void flush_next() { flushes_ = true; }

  // --- Called by the executor -------------------------------------------------------------------

  void fold(const CodecElements& elements) final;
  void inspect(const CodecElements& finished) final;
  void fold(Stream& stream, const CodecElements& elements) final;
  void inspect(Stream& stream, const CodecElements& finished) final;

 protected:
  bool gathers() const { return options_.route == ExchangeRoute::kAllGather; }
  /// Returns the density of this step; empty if the step is dense.
  std::optional<double> density() const;
  /// Begins a sparse step with these elements.
  void begin_sparse(const CodecElements& contribution);
  /// Stores the address of each part of the elements.
  void locate(const CodecElements& elements);
  std::span<float> part_at(std::size_t part) const;
  /// Returns this rank's shard in pinned memory, where a method that codes sums decodes them for
  /// elements in device memory.
  CodecElements staged() const;
  /// Writes a NaN to the result, because some rank found a number that is not finite. `inspect`
  /// then finds the NaN on all ranks.
  void spoil();
  /// Called when a sparse step is accepted. Writes the pairs that it subtracts from the residuals
  /// to `sent_`.
  virtual void find_sent() = 0;
  /// Calls visit(run) for the elements whose sums this rank owns and codes.
  template <typename Visit>
  void for_coded_sums(const Visit& visit) const {
    if (owned_count_ > 0) layout_.plan.for_runs(layout_.position, visit);
  }

  const SparseOptions options_;
  const SparseLayout layout_;
  ErrorFeedback feedback_;
  const std::size_t owned_count_;  ///< Number of sums that this rank owns; 0 unless they are coded.
  /// Residuals of the sums that this rank owns, as one tensor in ascending order of elements. There
  /// is no tensor if `owned_count_` is 0.
  ErrorFeedback sums_feedback_;
  /// By part, the right factor of the last step; empty unless the method sends factors.
  ResidualStore factors_;
  std::vector<float> owned_sums_;  ///< The sums that this rank owns; used only within a step.
  GradientCodecStats stats_;
  std::vector<Pairs> sent_;  ///< By part, with values as the receivers saw them.

 private:
  enum class Step : std::uint8_t { kNone, kSparse, kDense };

  void begin(Step step);
  /// Calls look(offset, count) for the elements whose results show whether the step is finite.
  template <typename Look>
  void for_looked_at(const Look& look) const;
  /// Adds the residuals of the sums that this rank owns to the elements of a dense step.
  void fold_sums();
  /// Writes the residuals of the sums that this rank owns to `staged_`, and -0, which changes no
  /// number, for other elements. Returns whether any of them is not zero.
  bool stage_kept_sums();
  /// Returns the saved residuals of the sums that this rank owns. Errors: as `load`.
  std::vector<float> kept_sums(const FeedbackState& state) const;

  std::vector<float*> places_;  // address of each part's elements
  const std::vector<std::size_t> tensor_offsets_;
  const std::vector<std::size_t> looked_at_;  // first element of each shard, which `inspect` reads
  bool finite_ = true;
  std::optional<DeviceFlag> verdict_;  // in device memory, raised unless the step is finite
  DeviceMemory staged_;                // see `staged`
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
