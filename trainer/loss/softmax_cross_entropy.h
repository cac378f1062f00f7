#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/tensor.h"

namespace kolo::trainer {

/// What a batch adds to a mean over many batches and ranks.
struct LossSums {
  double loss = 0.0;     ///< Nats, summed over rows.
  double correct = 0.0;  ///< Rows whose largest logit is the target's.
  double rows = 0.0;

  LossSums& operator+=(const LossSums& other) {
    loss += other.loss;
    correct += other.correct;
    rows += other.rows;
    return *this;
  }
};

/// Softmax cross-entropy of a batch of logits and its gradient.
///
/// Rows beyond `targets.size()` are padding: they count for nothing and have gradient zero. Thus a
/// short batch, or an empty one, runs through a model of fixed shape.
class SoftmaxCrossEntropy {
 public:
  SoftmaxCrossEntropy(std::size_t rows, std::size_t classes) : gradient_({rows, classes}) {}

  /// Every row's gradient is multiplied by `row_weight`.
  /// Errors: UsageError when shapes do not fit or a target is no class.
  LossSums evaluate(std::span<const float> logits, std::span<const std::uint8_t> targets,
                    float row_weight);

  /// Of the last `evaluate`.
  std::span<const float> gradient() const { return gradient_.span(); }

 private:
  Tensor gradient_;  // [rows, classes]
};

}  // namespace kolo::trainer
