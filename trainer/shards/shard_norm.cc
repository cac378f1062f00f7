#include "trainer/shards/shard_norm.h"

#include <cmath>

#include "trainer/kernels/vector.h"
#include "trainer/optimizer/gradient_norm.h"

namespace kolo::trainer {

ShardSquares squares_of(const ParameterSet& parameters, const ShardPlan& plan, std::size_t rank) {
  ShardSquares squares;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (plan.bucket_of(i)) {
      parameters[i].visit_averages(plan.range(i, rank), [&](std::span<const float> part) {
        squares.of_shard += sum_of_squares(part);
      });
    } else {
      squares.of_rows += sum_of_squares(parameters[i]);
    }
  }
  return squares;
}

std::vector<TensorNorms::Squares> tensor_squares_over_ranks(Runtime& runtime,
                                                            const TensorNorms& norms,
                                                            const ShardPlan& plan,
                                                            std::size_t parameters) {
  using Squares = TensorNorms::Squares;
  static_assert(sizeof(Squares) == 2 * sizeof(double));
  const auto rank = static_cast<std::size_t>(runtime.rank());
  const auto ranks = static_cast<std::size_t>(runtime.world_size());
  std::vector<Squares> all(ranks * parameters);
  for (std::size_t i = 0; i < parameters; ++i) {
    all[rank * parameters + i] = norms.squares_of(i, plan.range(i, rank));
  }
  if (ranks > 1) {
    runtime.all_gather("squares of tensors", nullptr,
                       {all.data(), 2 * all.size(), DType::kFloat64});
  }
  std::vector<Squares> whole(parameters);
  for (std::size_t i = 0; i < all.size(); ++i) whole[i % parameters] += all[i];
  return whole;
}

double norm_over_ranks(Runtime& runtime, ShardSquares squares) {
  double& sum = squares.of_shard;
  if (runtime.world_size() > 1) {
    runtime.all_reduce("gradient norm", {&sum, 1, DType::kFloat64});
  }
  return std::sqrt(sum + squares.of_rows);
}

}  // namespace kolo::trainer
