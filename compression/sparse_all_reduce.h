#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/collective/chunking.h"
#include "comm/schedule/schedule.h"
#include "compression/block_plan.h"
#include "compression/density_schedule.h"
#include "compression/error_feedback.h"
#include "compression/exchange_routes.h"
#include "compression/sparse_exchange.h"
#include "topology/process_grid.h"

namespace kolo {

/// Who exchanges pairs with whom.
enum class SparseScope : std::uint8_t {
  kBetweenNodes,  ///< Ranks of a node sum densely first, and each exchanges its part with the ranks
                  ///< of equal local rank. Flat on one node, and where nodes differ in size.
  kFlat,          ///< Every rank with every other.
};

/// A compression group, as all ranks must know it alike: it is fixed by the job, and does not
/// depend on what is fused when.
struct SparseOptions {
  std::vector<FeedbackTensor> tensors = {};  ///< float32, in the order in which they lie.
  double density = 0.01;
  WarmUp warm_up = {};
  ExchangeRoute route = ExchangeRoute::kPairwise;
  QuotaRule rule = QuotaRule::kQuota;
  SparseScope scope = SparseScope::kBetweenNodes;
  DType wire = DType::kFloat16;         ///< Of values on their way to the owners.
  DType result_wire = DType::kFloat32;  ///< On their way back.
  std::optional<MomentumCorrection> momentum = std::nullopt;
  bool feedback = true;   ///< Off: what is not sent is lost.
  std::size_t block = 0;  ///< Above 0: blocks of so many elements, which all ranks choose together,
                          ///< through owners. The rule does not matter.
};

/// Cuts tensors, in order, into groups of about `kGroupElements`: a tensor is in one group, and
/// groups are as full as they can be. Returns each group's tensors. Pure.
inline constexpr std::size_t kGroupElements = std::size_t{1} << 22;
std::vector<std::vector<std::size_t>> compression_groups(std::span<const std::size_t> counts);

/// Where each tensor of a group begins in its bucket: side by side, without gaps, so that what an
/// owner keeps is in proportion to what there is.
std::vector<std::size_t> tensor_offsets(const SparseOptions& options);
/// Elements of the group's bucket.
std::size_t bucket_count(const SparseOptions& options);

/// What of a tensor lies in the part of the bucket that a rank exchanges, and whose residual it
/// has.
struct SparsePart {
  std::size_t tensor = 0;
  std::size_t first = 0;  ///< Of the tensor's elements.
  std::size_t count = 0;
  std::size_t offset = 0;  ///< Of its first element, in the bucket.
};

/// A rank's place in the exchange of a group.
struct SparseLayout {
  bool is_two_level = false;
  Extent shard = {};            ///< Of the bucket: what it exchanges.
  std::vector<int> ranks = {};  ///< That exchange this shard, in the order of their sums.
  int position = 0;             ///< Its own among them.
  std::vector<SparsePart> parts = {};
  /// For the largest density there will be; the plans' tensors are the parts.
  SparsePlan plan = {};
  std::optional<BlockPlan> blocks = std::nullopt;  ///< Where blocks are chosen.
};
SparseLayout sparse_layout(int rank, const ProcessGrid& grid, const SparseOptions& options);

/// The bucket of a group: `placement` is kInPlace or kUser.
BucketLayout sparse_bucket(const SparseOptions& options, ReduceOp op, Placement placement);

/// The schedules of `rank` for a sparse step of a group and for a dense one. Both need the group's
/// codec (`CompressedGroup`); in a dense step it adds what is left from former steps.
///
///     two-level    reduce-scatter inside the node  ·  encode, exchange, decode a shard  ·
///                  all-gather inside the node
///
/// Before: all arguments are equal on all ranks. After: all ranks hold identical bytes.
/// Cost:   `planned_exchange` says what is sent at most.
/// Threads: pure; any.
/// Errors: UsageError for a bucket that is not one of this group, and for blocks by all-gather.
Schedule compile_sparse(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                        const SparseOptions& options);
Schedule compile_dense_step(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                            const SparseOptions& options);

/// What a rank sends in the exchange of a sparse step, at most.
ScheduleTraffic planned_exchange(int rank, const ProcessGrid& grid, const SparseOptions& options);

}  // namespace kolo
