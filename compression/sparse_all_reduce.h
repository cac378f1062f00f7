#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile_options.h"
#include "comm/schedule/schedule.h"
#include "compression/error_feedback.h"
#include "compression/kernels/low_rank.h"
#include "compression/sparse_exchange.h"
#include "topology/process_grid.h"

namespace kolo {

/// The start of a training: dense steps, then falling densities down to the requested density. With
/// the all-gather route a high density costs more than a dense step, so early steps are dense
/// instead of nearly dense.
struct WarmUp {
  std::size_t dense_steps = 0;
  std::vector<double> ramp = {};  ///< Densities, in the order of steps.
  /// Number of steps with each density of `ramp`; 0 skips the ramp.
  std::size_t steps_per_density = 0;
};

/// Returns the density of a step, counted from 0; empty if the step is dense. Pure.
std::optional<double> density_at(const WarmUp& warm_up, double density, std::size_t step);

/// Returns the number of elements to send out of `count`: ceil(density * count), at least one if
/// count > 0. Errors: UsageError unless 0 < density <= 1.
std::size_t pairs_to_keep(double density, std::size_t count);

/// The ranks that exchange pairs with each other.
enum class SparseScope : std::uint8_t {
  kBetweenNodes,  ///< Ranks of a node sum densely first; then ranks of equal local rank exchange
                  ///< their parts. As kFlat on one node, and if nodes differ in size.
  kFlat,          ///< Every rank exchanges with every other rank.
};

struct CompressionMethod;
namespace methods {
extern const CompressionMethod topk;
}

/// The tensors of a compressed bucket, and how they are exchanged. Equal on all ranks. Independent
/// of the sizes of dense buckets.
struct SparseOptions {
  const CompressionMethod* method = &methods::topk;  ///< Must be a method with a codec.
  std::vector<FeedbackTensor> tensors = {};          ///< float32, in the order of their offsets.
  double density = 0.01;
  float threshold = 0.5f;       ///< Magnitude from which a value is sent, if the method takes one.
  std::size_t matrix_rank = 4;  ///< Columns of the factors that are sent, if the method takes them.
  WarmUp warm_up = {};
  ExchangeRoute route = ExchangeRoute::kPairwise;
  QuotaRule rule = QuotaRule::kQuota;
  SparseScope scope = SparseScope::kBetweenNodes;
  /// Dtype of values sent to owners; sums are float32. If the method codes sums: dtype of the sums
  /// under kLossless.
  DType wire = DType::kFloat16;
  std::optional<MomentumCorrection> momentum = std::nullopt;
  bool feedback = true;  ///< If false, values that are not sent are lost.
  /// For codecs of buckets in device memory; null for host memory. Schedules do not depend on it.
  std::shared_ptr<FeedbackStream> device = nullptr;
};

/// Divides tensors, in order, into compressed buckets of at most `most` elements; a larger tensor
/// gets its own bucket. Buckets are as full as possible. Returns the indices of each bucket's
/// tensors. Pure.
std::vector<std::vector<std::size_t>> compressed_buckets(std::span<const std::size_t> counts,
                                                         std::size_t most);

/// Returns the offset of each tensor in its compressed bucket. Tensors are adjacent, so that an
/// owner's share of a tensor is proportional to the tensor's elements.
std::vector<std::size_t> tensor_offsets(const SparseOptions& options);
/// Returns the number of elements of the compressed bucket.
std::size_t bucket_count(const SparseOptions& options);

/// The part of a tensor that a rank exchanges; the rank holds its residual.
struct SparsePart {
  std::size_t tensor = 0;
  std::size_t first = 0;  ///< Index of its first element in the tensor.
  std::size_t count = 0;
  std::size_t offset = 0;  ///< Index of its first element in the bucket.
};

/// The role of a rank in the exchange of a compressed bucket.
struct SparseLayout {
  bool is_two_level = false;
  Extent shard = {};            ///< The part of the bucket that this rank exchanges.
  std::vector<int> ranks = {};  ///< The ranks that exchange this shard, in the order in which their
                                ///< contributions are summed.
  int position = 0;             ///< Index of this rank in `ranks`.
  std::vector<SparsePart> parts = {};
  std::vector<MatrixPart> matrices = {};  ///< The parts, if the method sends factors.
  /// The plan for the largest density of any step; its tensors are the parts.
  SparsePlan plan = {};
};
SparseLayout sparse_layout(int rank, const ProcessGrid& grid, const SparseOptions& options);

/// The capacity and typical content of a payload between two ranks.
struct PayloadForm {
  std::size_t capacity = 0;
  PayloadUse usual = {};
};
struct PayloadForms {
  PayloadForm share;         ///< A rank's contribution to one owner.
  PayloadForm result;        ///< An owner's sums.
  PayloadForm contribution;  ///< A rank's whole contribution.
};

/// Returns the layout of a compressed bucket in host memory. `placement` is kInPlace or kUser.
BucketLayout sparse_bucket(const SparseOptions& options, ReduceOp op, Placement placement);
/// Returns the layout of a compressed bucket in device memory, into which tensors are packed.
BucketLayout sparse_device_bucket(const SparseOptions& options, ReduceOp op);

/// Why a bucket in device memory cannot be compressed on these nodes; empty if it can. Pure.
std::string_view device_obstacle(const ProcessGrid& grid, const SparseOptions& options,
                                 bool native_in_nodes);

/// The schedules of `rank` for a sparse and for a dense step of a compressed bucket. Both need the
/// codec of the method; in a dense step the codec adds the residuals.
///
///     two-level    reduce-scatter inside the node  ·  encode, exchange, decode a shard  ·
///                  all-gather inside the node
///
/// In device memory, the phases inside the node are the device library's, and the processor works
/// on pairs: select · encode, exchange, decode · scatter. `device` is for such buckets.
///
/// Before: all arguments are equal on all ranks. After: all ranks hold identical bytes.
/// Threads: pure; any.
/// Errors: UsageError if `bucket` does not match `options`, or if there is a `device_obstacle`.
Schedule compile_sparse(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                        const SparseOptions& options, const CompileOptions& device = {});
Schedule compile_dense_step(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                            const SparseOptions& options, const CompileOptions& device = {});

}  // namespace kolo
