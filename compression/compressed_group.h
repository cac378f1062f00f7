#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/schedule/codec.h"
#include "compression/density_schedule.h"
#include "compression/error_feedback.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {

/// What a compressed group has done so far, and in its last step.
struct CompressedGroupStats {
  std::size_t steps = 0;          ///< Ended, skipped ones too.
  std::size_t skipped = 0;        ///< Aborted.
  std::size_t k = 0;              ///< Values that this rank may send in a step; 0 in a dense one.
  std::size_t sent_pairs = 0;     ///< That it has sent, to itself, too.
  std::size_t kept_pairs = 0;     ///< Of all results.
  std::size_t payload_bytes = 0;  ///< In use in its payloads to and as an owner; each once.
};

/// The codec of one compression group on one rank: a part of the sums, with error feedback. Which
/// part, and how it travels, is for those that derive from it. Tensors that share payloads, owners
/// and a schedule; fixed by the job, and never by what is fused when.
///
/// A step is dense or sparse by its number. The caller starts the bucket of the schedule that
/// `compile_dense_step` or `compile_sparse` gave, and when the buckets of all groups of a set are
/// over, asks all groups whether they are finite, and commits all, or aborts all:
///
///     start(group.is_dense() ? dense bucket : sparse bucket)    of every group
///     all finite() ? commit() : abort()                         every group, on all ranks
///
/// `finite` is equal on all ranks. If it is not, every rank's tensors hold a NaN or an infinity.
///
/// Threads: one at a time. Steady state allocates nothing.
class CompressedGroup : public Codec {
 public:
  /// The group that `options` ask for: pairs of each rank, or blocks that all ranks choose.
  static std::unique_ptr<CompressedGroup> make(int rank, const ProcessGrid& grid,
                                               SparseOptions options);

  const SparseOptions& options() const { return options_; }

  // --- Around a step ----------------------------------------------------------------------------

  /// Number of the next step, from 0: what the warm-up goes by. Set it after a checkpoint was
  /// loaded, to the same on all ranks.
  std::size_t step() const { return stats_.steps; }
  void set_step(std::size_t step);
  /// Whether the next step is dense.
  bool is_dense() const;
  /// Whether its number is that of a dense step of the warm-up: nothing waits in residuals then.
  bool is_warming_up() const { return stats_.steps < options_.warm_up.dense_steps; }

  /// Whether a step has run that is to be committed or aborted.
  bool has_run() const { return step_ != Step::kNone; }
  /// Whether all numbers of the step that has run were finite, on all ranks.
  bool finite() const { return finite_; }
  /// Accepts the step: what is in the result leaves the residuals.
  void commit();
  /// Forgets the step: no residual has changed.
  void abort();

  // --- State, between steps ---------------------------------------------------------------------

  /// Names and places of the parts of tensors whose residuals this rank holds.
  const std::vector<SparsePart>& parts() const { return layout_.parts; }
  /// Of the parts of one of the group's tensors that this rank holds.
  double residual_norm(std::size_t tensor) const;
  FeedbackState save() const { return feedback_.save(); }
  /// Errors: as ErrorFeedback::load.
  void load(const FeedbackState& state) { feedback_.load(state); }
  void check_state(const FeedbackState& state) const { feedback_.check_state(state); }
  /// What of the states of another job's ranks this rank takes over, see `remap`.
  FeedbackShare share(double factor) const;
  /// Forgets what was not sent; velocities stay.
  void drop_residuals();
  const CompressedGroupStats& stats() const { return stats_; }
  /// The next step is dense, whatever its number, and leaves no residual; to be called on all
  /// ranks.
  void flush_next() { flushes_ = true; }

  // --- Codec: the executor's --------------------------------------------------------------------

  void fold(const CodecElements& elements) override;
  void inspect(const CodecElements& finished) override;

 protected:
  enum class Step : std::uint8_t { kNone, kSparse, kDense };

  CompressedGroup(int rank, const ProcessGrid& grid, SparseOptions options);

  /// This step's density; nothing if it is dense.
  std::optional<double> density() const;
  void begin(Step step);
  /// Finds where each part is.
  void locate(const CodecElements& elements);
  std::span<float> part_at(std::size_t part) const;
  /// Makes all elements zero, where most of the result is.
  void clear(const CodecElements& elements);
  /// Afterwards: says that there is no result, where `inspect` looks on all ranks.
  void mark_not_finite();
  /// Takes what was sent in a sparse step out of every part's residual.
  virtual void commit_sparse() = 0;

  const SparseOptions options_;
  const SparseLayout layout_;
  ErrorFeedback feedback_;
  CompressedGroupStats stats_;
  std::vector<float*> places_;  // of parts

 private:
  const std::vector<std::size_t> tensor_offsets_;
  const std::vector<std::size_t> looked_at_;  // of the bucket: the first element of every shard
  bool finite_ = true;
  bool flushes_ = false;
  Step step_ = Step::kNone;
};

}  // namespace kolo
