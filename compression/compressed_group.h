#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/schedule/codec.h"
#include "compression/error_feedback.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {

/// Sums the pairs that all ranks send to one owner: in float32, in the order in which payloads are
/// added, which is ascending rank, so the bits do not depend on the path or time of arrival.
///
/// Memory:  4 bytes and one bit per element of the owner. Threads: one.
class OwnerSum {
 public:
  explicit OwnerSum(std::size_t local_count);

  /// The first value of an element is stored, later ones are added. Errors: UsageError for an index
  /// that the owner does not have.
  void add(const Pairs& pairs);

  /// Moves the sums of all elements with a value to `sums`, in ascending order, and starts again.
  void take(Pairs& sums);

 private:
  std::vector<float> sums_;
  std::vector<std::uint64_t> touched_;  ///< One bit per element.
};

/// Counters of a compressed group, in total and for its last step.
struct CompressedGroupStats {
  std::size_t steps = 0;       ///< Ended steps, including skipped ones.
  std::size_t skipped = 0;     ///< Aborted steps.
  std::size_t k = 0;           ///< Most values that this rank may send in a step; 0 in a dense one.
  std::size_t sent_pairs = 0;  ///< Pairs sent, including those to itself.
  std::size_t kept_pairs = 0;  ///< Pairs in all results.
  std::size_t payload_bytes =
      0;  ///< Bytes in use in its payloads to and as an owner, each counted once.
};

/// The codec of one compression group on one rank: the largest sums, as pairs of value and index,
/// with error feedback. The tensors of a group share payloads, owners and a schedule; the job fixes
/// the group, and bucket sizes do not change it.
///
/// A step is dense or sparse by its number. The caller starts the bucket with the schedule of
/// `compile_dense_step` or `compile_sparse`. When the buckets of all groups of a set are complete,
/// it asks all groups whether they are finite, and commits all or aborts all:
///
///     start(group.is_dense() ? dense bucket : sparse bucket)    of every group
///     all finite() ? commit() : abort()                         every group, on all ranks
///
/// `finite` is equal on all ranks. If it is false, every rank's tensors hold a NaN or an infinity.
///
/// Threads: one at a time. Steady state allocates nothing.
class CompressedGroup final : public Codec {
 public:
  CompressedGroup(int rank, const ProcessGrid& grid, SparseOptions options);

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
  /// The share of the states of another job's ranks that this rank takes over; see `remap`.
  FeedbackShare share(double factor) const;
  /// Discards the residuals; velocities stay.
  void drop_residuals();
  const CompressedGroupStats& stats() const { return stats_; }
  /// Makes the next step dense, whatever its number; it leaves no residual. Collective.
  void flush_next() { flushes_ = true; }

  // --- Codec: the executor's --------------------------------------------------------------------

  void fold(const CodecElements& elements) override;
  void encode(const CodecElements& contribution, Payloads payloads) override;
  void merge(Payloads sources, Payloads sum) override;
  void decode(Payloads results, const CodecElements& elements, double scale) override;
  void inspect(const CodecElements& finished) override;

 private:
  enum class Step : std::uint8_t { kNone, kSparse, kDense };

  void reserve();
  /// Density of this step; empty if it is dense.
  std::optional<double> density() const;
  void begin(Step step);
  /// Sets the address of each part.
  void locate(const CodecElements& elements);
  std::span<float> part_at(std::size_t part) const;
  bool select();
  /// Selects from an owner's sums and encodes the selection.
  void finish_owner(int owner, Pairs& sums, std::span<std::byte> result);
  void put(int owner, const Pairs& result);

  const SparseOptions options_;
  const SparseLayout layout_;
  ErrorFeedback feedback_;
  CompressedGroupStats stats_;
  std::vector<float*> places_;  // by part

  const std::vector<std::size_t> tensor_offsets_;
  const std::vector<std::size_t> looked_at_;  // the first element of every shard of the bucket
  bool finite_ = true;
  bool flushes_ = false;
  Step step_ = Step::kNone;

  const BlockOwnership ownership_;
  const PayloadPlan share_plan_, result_plan_, contribution_plan_;
  SparsePlan step_plan_;  // with the k of this step

  // Memory of a step.
  Contribution contribution_;
  Shares shares_;
  Share whole_;
  Pairs decoded_;
  OwnerSum sum_;
  Pairs sums_;                 // of this owner, or with the group's indices
  std::vector<Pairs> owners_;  // sums by owner, later results
  std::vector<Pairs> sent_;    // by part
  std::vector<std::uint32_t> keys_;
  std::vector<QuotaPart> quotas_;
  std::vector<std::size_t> cursors_;
  bool sum_is_finite_ = true;
};

}  // namespace kolo
