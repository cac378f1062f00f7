#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/tensor.h"

namespace kolo::trainer {

/// The sums of a batch, for means over many batches and ranks.
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
/// Rows beyond `targets.size()` are padding: they do not count and their gradient is zero. A short
/// or empty batch can thus run through a model of fixed shape.
class SoftmaxCrossEntropy {
 public:
  SoftmaxCrossEntropy(std::size_t rows, std::size_t classes) : gradient_({rows, classes}) {}

  /// Every row's gradient is multiplied by `row_weight`.
  /// Errors: UsageError if shapes do not fit or a target is not a class.
  LossSums evaluate(std::span<const float> logits, std::span<const std::uint8_t> targets,
                    float row_weight);

  /// The gradient of the last `evaluate`.
  std::span<const float> gradient() const { return gradient_.span(); }

 private:
  Tensor gradient_;  // [rows, classes]
};

}  // namespace kolo::trainer
