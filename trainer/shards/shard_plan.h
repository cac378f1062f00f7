#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "runtime/options/options.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

class ParameterUpdater;

/// The largest size of a bucket in bytes, of float32 elements: `fusion_bytes`, or 1 MiB if that is
/// not set; on a device `device_fusion_bytes`, `fusion_bytes` or 32 MiB.
std::size_t shard_bucket_bytes(const Options& options);

/// As shard_bucket_bytes. `gradients` is their dtype. Errors: KoloError(kConfig) naming an option
/// of the runtime that excludes shards.
std::size_t checked_bucket_bytes(const Runtime& runtime, DType gradients);

/// Maps each element of a model's parameters to the rank that owns it. Parameters are packed into
/// buckets in reverse registration order, in which backward passes complete gradients. Each rank
/// owns an equal part of each bucket, in rank order; a boundary between parts may divide a
/// parameter:
///
///     bucket    | bias | weight               | bias | weight    |
///     owners    | rank 0          | rank 1          | rank 2     |
///
/// Parameters with sparse gradients are not part of the plan.
///
/// Threads: any; pure.
class ShardPlan {
 public:
  /// Parameters and parts begin at multiples of kAlignment elements, which is one cache line.
  static constexpr std::size_t kAlignment = 16;

  struct Segment {
    std::size_t parameter;
    std::size_t offset;  ///< Index of the parameter's first element in the bucket.
  };
  struct Bucket {
    std::vector<Segment> segments = {};
    std::size_t count = 0;  ///< Number of elements including padding, a multiple of the number of
                            ///< ranks.
  };

  /// A bucket has at most `bucket_bytes` bytes, unless it holds a single larger parameter. Before:
  /// ranks > 0.
  ShardPlan(const ParameterSet& parameters, std::size_t ranks, std::size_t bucket_bytes);

  std::span<const Bucket> buckets() const { return buckets_; }
  /// The index of the parameter's bucket; empty if its gradient is sparse.
  std::optional<std::size_t> bucket_of(std::size_t parameter) const {
    return places_[parameter].bucket;
  }
  /// The elements of a parameter that a rank owns. Before: the parameter is part of the plan.
  ElementRange range(std::size_t parameter, std::size_t rank) const;
  /// The elements of a parameter that each rank owns, in rank order.
  std::vector<ElementRange> ranges(std::size_t parameter) const;
  /// The number of elements of each rank's part of a bucket.
  std::size_t part_count(const Bucket& bucket) const { return bucket.count / ranks_; }

 private:
  struct Place {
    std::optional<std::size_t> bucket;
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  std::size_t ranks_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // places by parameter
};

/// Describes the exchange of shards. `gradients` is their dtype.
PlanSummary summarize(const ShardPlan& plan, const ParameterSet& parameters,
                      std::size_t bucket_bytes, DType gradients);

/// Visits the place of the state of compression, which a job with shards does not have, but a job
/// without them expects.
void visit_no_compression(StateVisitor& visitor);

/// Sums of squares of averaged gradients.
struct ShardSquares {
  double of_shard = 0.0;  ///< Sum over the elements that the plan assigns to one rank.
  double of_rows = 0.0;   ///< Sum over sparse gradients, which all ranks have.
};

/// Computes the squares of the elements of rank `rank`, so that no rank reads all averages. The
/// result has the same bits whether a rank has all averages or only its shards. If `counts_whole`
/// is false, it leaves out parameters that are whole on this rank (`Part::is_whole`).
ShardSquares squares_of(const ParameterSet& parameters, const ShardPlan& plan, std::size_t rank,
                        bool counts_whole = true);

/// Computes the squares of each whole tensor, by parameter. Each rank contributes the squares of
/// elements that it owns: two numbers per parameter, which all ranks add up in rank order.
/// Collective. Before: `norms` has prepared all parameters, and all parameters are part of `plan`.
/// Errors: those of the runtime.
std::vector<TensorNorms::Squares> tensor_squares_over_ranks(Runtime& runtime,
                                                            const TensorNorms& norms,
                                                            const ShardPlan& plan,
                                                            std::size_t parameters);

/// The Euclidean norm of all averages, taken as one vector, from this rank's `squares`. Collective:
/// adds up one number per rank, in rank order. Errors: those of the runtime.
double norm_over_ranks(Group& group, ShardSquares squares);

struct ShardOptions {
  UpdateGate::Options gate = {};
  /// Which averages a rank keeps during a step: all of them, or only its shards (ZeRO-2).
  enum class Keep { kWhole, kShards } keep = Keep::kWhole;
};

/// Makes an updater with parameters sharded over ranks. It calls `make` after the parameters know
/// which elements this rank owns (`Parameter::owned`). Collective.
/// Errors: those of the runtime and of `make`; KoloError(kConfig) naming an option of the runtime
///         that excludes shards.
std::unique_ptr<ParameterUpdater> make_sharded_optimizer(
    Runtime& runtime, ParameterSet& parameters,
    const std::function<std::unique_ptr<Optimizer>(ParameterSet&)>& make,
    const ShardOptions& options, const Clock& clock);

}  // namespace kolo::trainer
