#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/algorithms/chunking.h"
#include "comm/schedule/schedule.h"
#include "compression/error_feedback.h"
#include "compression/sparse_exchange.h"
#include "topology/process_grid.h"

namespace kolo {

/// Dense steps first, then falling densities down to the requested one. A high density by
/// all-gather costs more than a dense step, so early steps are dense rather than nearly dense.
struct WarmUp {
  std::size_t dense_steps = 0;
  std::vector<double> ramp = {};  ///< Densities in succession.
  std::size_t steps_per_density =
      0;  ///< Length of each density of the ramp; 0 leaves the ramp out.
};

/// Density of a step, counted from 0; empty if the step is dense. Pure.
std::optional<double> density_at(const WarmUp& warm_up, double density, std::size_t step);

/// Number of `count` elements that a density keeps: ceil(density * count), at least one if there
/// are any. Errors: UsageError unless 0 < density <= 1.
std::size_t pairs_to_keep(double density, std::size_t count);

/// The ranks that exchange pairs with each other.
enum class SparseScope : std::uint8_t {
  kBetweenNodes,  ///< Ranks of a node sum densely first, and each exchanges its part with the ranks
                  ///< of equal local rank. Flat on one node, and where nodes differ in size.
  kFlat,          ///< Every rank with every other.
};

struct CompressionMethod;
namespace methods {
extern const CompressionMethod topk;
}

/// A compressed bucket: its tensors, and how they are exchanged. It must be equal on all ranks. It
/// does not depend on the sizes of dense buckets.
struct SparseOptions {
  const CompressionMethod* method = &methods::topk;  ///< Must be a method with a codec.
  std::vector<FeedbackTensor> tensors = {};          ///< float32, in the order of their places.
  double density = 0.01;
  WarmUp warm_up = {};
  ExchangeRoute route = ExchangeRoute::kPairwise;
  QuotaRule rule = QuotaRule::kQuota;
  SparseScope scope = SparseScope::kBetweenNodes;
  DType wire = DType::kFloat16;  ///< Wire dtype of values sent to owners; sums are float32.
  std::optional<MomentumCorrection> momentum = std::nullopt;
  bool feedback = true;  ///< False: values that are not sent are lost.
};

/// Most elements of a compressed bucket, unless a single tensor is larger.
inline constexpr std::size_t kCompressedBucketElements = std::size_t{1} << 22;
/// Cuts tensors, in order, into groups of at most `kCompressedBucketElements` elements unless a
/// single tensor is larger. Groups are as full as possible. Returns the indices of the tensors of
/// each group. Pure.
std::vector<std::vector<std::size_t>> compressed_buckets(std::span<const std::size_t> counts);

/// Where each tensor of a group begins in its bucket. Tensors are adjacent, so that an owner keeps
/// a share in proportion to the elements.
std::vector<std::size_t> tensor_offsets(const SparseOptions& options);
/// Number of elements of the group's bucket.
std::size_t bucket_count(const SparseOptions& options);

/// The piece of a tensor in the part of the bucket that a rank exchanges; the rank holds its
/// residual.
struct SparsePart {
  std::size_t tensor = 0;
  std::size_t first = 0;  ///< Index of its first element in the tensor.
  std::size_t count = 0;
  std::size_t offset = 0;  ///< Index of its first element in the bucket.
};

/// The place of a rank in the exchange of a group.
struct SparseLayout {
  bool is_two_level = false;
  Extent shard = {};            ///< The part of the bucket that this rank exchanges.
  std::vector<int> ranks = {};  ///< The ranks that exchange this shard, in the order of their sums.
  int position = 0;             ///< Index of this rank among them.
  std::vector<SparsePart> parts = {};
  /// For the largest density of any step; the plans' tensors are the parts.
  SparsePlan plan = {};
};
SparseLayout sparse_layout(int rank, const ProcessGrid& grid, const SparseOptions& options);

/// Capacity and usual size of payloads between two ranks.
struct PayloadForm {
  std::size_t capacity = 0;
  PayloadUse usual = {};
};
struct PayloadForms {
  PayloadForm share;         ///< A rank's contribution to one owner.
  PayloadForm result;        ///< An owner's sums.
  PayloadForm contribution;  ///< A rank's whole contribution.
};

/// The bucket of a group: `placement` is kInPlace or kUser.
BucketLayout sparse_bucket(const SparseOptions& options, ReduceOp op, Placement placement);

/// The schedules of `rank` for a sparse and for a dense step of a group. Both need the codec that
/// the method makes for the group; in a dense step it adds the residuals.
///
///     two-level    reduce-scatter inside the node  ·  encode, exchange, decode a shard  ·
///                  all-gather inside the node
///
/// Before: all arguments are equal on all ranks. After: all ranks hold identical bytes.
/// Threads: pure; any.
/// Errors: UsageError for a bucket of another group.
Schedule compile_sparse(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                        const SparseOptions& options);
Schedule compile_dense_step(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                            const SparseOptions& options);

}  // namespace kolo
