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

/// Bytes of a bucket of shards: `fusion_bytes`, or 1 MiB unless that is set.
std::size_t shard_bucket_bytes(const Options& options);

/// Which rank owns which elements of a model's parameters. Parameters stand side by side in
/// buckets, the last registered first, because backward passes complete their gradients in this
/// order. Each rank owns an equal part of each bucket, in the order of ranks, wherever that cuts
/// the parameters:
///
///     bucket    | bias | weight               | bias | weight    |
///     owners    | rank 0          | rank 1          | rank 2     |
///
/// Parameters whose gradients are rows are left out.
///
/// Threads: pure.
class ShardPlan {
 public:
  /// Parameters and parts begin at multiples of so many elements: of a cache line.
  static constexpr std::size_t kAlignment = 16;

  struct Segment {
    std::size_t parameter;
    std::size_t offset;  ///< In the bucket.
  };
  struct Bucket {
    std::vector<Segment> segments = {};
    std::size_t count = 0;  ///< Elements with padding, a multiple of the ranks.
  };

  /// A bucket has at most `bucket_bytes`, or one parameter that is larger. Before: ranks > 0.
  ShardPlan(const ParameterSet& parameters, std::size_t ranks, std::size_t bucket_bytes);

  std::span<const Bucket> buckets() const { return buckets_; }
  /// Empty for rows.
  std::optional<std::size_t> bucket_of(std::size_t parameter) const {
    return places_[parameter].bucket;
  }
  /// The elements of a parameter that a rank owns; its gradient is not rows.
  ElementRange range(std::size_t parameter, std::size_t rank) const;
  /// Those of all ranks, in their order.
  std::vector<ElementRange> ranges(std::size_t parameter) const;
  /// The elements of each rank's part of a bucket.
  std::size_t part_count(const Bucket& bucket) const { return bucket.count / ranks_; }

 private:
  struct Place {
    std::optional<std::size_t> bucket;
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  std::size_t ranks_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // by parameter
};

/// Sums of squares of averages.
struct ShardSquares {
  double of_shard = 0.0;  ///< The elements that a plan gives one rank.
  double of_rows = 0.0;   ///< Rows of tables, which all ranks have.
};

/// Those of a rank, so that no rank reads all averages. Ranks that hold all of them get the bits of
/// ranks that hold their shards alone.
ShardSquares squares_of(const ParameterSet& parameters, const ShardPlan& plan, std::size_t rank);

/// The squares of each whole tensor, by parameter, of which this rank adds those of the elements
/// that it owns. Collective: each rank sends two numbers per parameter, and all add up those of all
/// ranks in the order of ranks. Before: `norms` has prepared all parameters, which `plan` has.
/// Errors: those of the runtime.
std::vector<TensorNorms::Squares> tensor_squares_over_ranks(Runtime& runtime,
                                                            const TensorNorms& norms,
                                                            const ShardPlan& plan,
                                                            std::size_t parameters);

/// Euclidean norm of all averages taken as one vector, from the squares of this rank. Collective:
/// one number is added up, in the order of ranks. Errors: those of the runtime.
double norm_over_ranks(Runtime& runtime, ShardSquares squares);

struct ShardOptions {
  UpdateGate::Options gate = {};
  /// What a rank keeps of gradients for the step: all, or those of its shards (ZeRO-2).
  enum class Keep { kWhole, kShards } keep = Keep::kWhole;
};

/// Updates parameters by shards. `make` is called when the parameters know which elements this rank
/// owns.
/// Errors: those of the runtime and of `make`; KoloError(kConfig) naming an option of the runtime
///         that does not go with shards.
std::unique_ptr<ParameterUpdater> make_sharded_optimizer(
    Runtime& runtime, ParameterSet& parameters,
    const std::function<std::unique_ptr<Optimizer>(ParameterSet&)>& make,
    const ShardOptions& options, const Clock& clock);

}  // namespace kolo::trainer
