#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/layers/tables.h"
#include "trainer/models/model.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Predicts a user's rating of an item: bias + bias[user] + bias[item] + factors[user] ·
/// factors[item]. Number 0 stands for unknown users and items; its biases and factors are zero.
///
/// Inputs: "user" and "item", int32. A row of the output is one number.
/// Source: Koren, Bell and Volinsky, "Matrix Factorization Techniques for Recommender Systems",
///         IEEE Computer 2009.
class MatrixFactorization final : public Model {
 public:
  struct Options {
    std::size_t ratings;  ///< Number of ratings per batch.
    std::size_t users;    ///< Number of users, including the unknown user 0.
    std::size_t items;
    std::size_t width;  ///< Number of factors of a user or item.
    float mean;         ///< Mean of all training ratings, the initial value of the bias.
    std::uint64_t seed;
  };

  static ModelEntry entry();

  explicit MatrixFactorization(const Options& options);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  Parameter& bias_;
  Lookup user_bias_, item_bias_, user_factors_, item_factors_;
  Tensor output_;
  Tensor user_gradient_, item_gradient_;
  std::span<const float> users_, items_;  // factors that the last forward pass looked up
};

}  // namespace kolo::trainer
