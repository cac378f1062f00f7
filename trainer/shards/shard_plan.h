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

/// Bytes per bucket of shards: `fusion_bytes`, or 1 MiB if that is not set.
std::size_t shard_bucket_bytes(const Options& options);

/// Maps each element of a model's parameters to the rank that owns it. Parameters are packed into
/// buckets in reverse registration order, the order in which backward passes complete their
/// gradients. The ranks, in order, own equal parts of each bucket, whose boundaries may cut
/// parameters:
///
///     bucket    | bias | weight               | bias | weight    |
///     owners    | rank 0          | rank 1          | rank 2     |
///
/// Parameters whose gradients are rows have no place in the plan.
///
/// Threads: pure.
class ShardPlan {
 public:
  /// Parameters and parts begin at multiples of this many elements: one cache line.
  static constexpr std::size_t kAlignment = 16;

  struct Segment {
    std::size_t parameter;
    std::size_t offset;  ///< In the bucket.
  };
  struct Bucket {
    std::vector<Segment> segments = {};
    std::size_t count = 0;  ///< Elements including padding, a multiple of the number of ranks.
  };

  /// A bucket has at most `bucket_bytes`, unless a single parameter is larger. Before:
  /// `ranks` is positive.
  ShardPlan(const ParameterSet& parameters, std::size_t ranks, std::size_t bucket_bytes);

  std::span<const Bucket> buckets() const { return buckets_; }
  /// The index of the parameter's bucket; empty if its gradient is rows.
  std::optional<std::size_t> bucket_of(std::size_t parameter) const {
    return places_[parameter].bucket;
  }
  /// The elements of a parameter that a rank owns. Before: the parameter's gradient is not rows.
  ElementRange range(std::size_t parameter, std::size_t rank) const;
  /// The elements of a parameter that each rank owns, in rank order.
  std::vector<ElementRange> ranges(std::size_t parameter) const;
  /// Elements in each rank's part of a bucket.
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
  double of_shard = 0.0;  ///< Over the elements that a plan assigns to one rank.
  double of_rows = 0.0;   ///< Over rows of tables, which all ranks have.
};

/// Computes the squares of one rank, so that no rank reads all averages. The bits do not depend on
/// whether a rank holds all averages or only its shards.
ShardSquares squares_of(const ParameterSet& parameters, const ShardPlan& plan, std::size_t rank);

/// The squares of each whole tensor, by parameter; each rank contributes those of the elements that
/// it owns. Collective: each rank sends two numbers per parameter, and all ranks add them up in
/// rank order. Before: `norms` has prepared all parameters, and `plan` covers them.
/// Errors: those of the runtime.
std::vector<TensorNorms::Squares> tensor_squares_over_ranks(Runtime& runtime,
                                                            const TensorNorms& norms,
                                                            const ShardPlan& plan,
                                                            std::size_t parameters);

/// Euclidean norm of all averages taken as one vector, given the squares of this rank. Collective:
/// adds up one number per rank, in rank order. Errors: those of the runtime.
double norm_over_ranks(Runtime& runtime, ShardSquares squares);

struct ShardOptions {
  UpdateGate::Options gate = {};
  /// The averages that a rank keeps for the step: all, or only its shards' (ZeRO-2).
  enum class Keep { kWhole, kShards } keep = Keep::kWhole;
};

/// Makes an updater with parameters sharded over ranks. It calls `make` once the parameters know
/// which elements this rank owns.
/// Errors: those of the runtime and of `make`; KoloError(kConfig) naming an option of the runtime
///         that excludes shards.
std::unique_ptr<ParameterUpdater> make_sharded_optimizer(
    Runtime& runtime, ParameterSet& parameters,
    const std::function<std::unique_ptr<Optimizer>(ParameterSet&)>& make,
    const ShardOptions& options, const Clock& clock);

}  // namespace kolo::trainer
