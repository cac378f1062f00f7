#pragma once

#include <cstddef>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/optimizer/tensor_norms.h"
#include "trainer/parameter_set.h"
#include "trainer/shards/shard_plan.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
