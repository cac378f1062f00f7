#pragma once

#include <cstddef>
#include <span>

#include "trainer/loss/loss.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Softmax cross-entropy of rows of logits, in nats. The score counts the rows whose largest logit
/// is the target's.
///
/// Targets: one tensor, int32, with a class for each row, or kNoTarget for one that does not count.
class SoftmaxCrossEntropy final : public Loss {
 public:
  struct Options {
    std::size_t rows;
    std::size_t classes;
    /// Share of the target that is spread over all classes alike while training, 0 to below 1.
    /// Source: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016.
    float label_smoothing = 0.0f;
  };

  explicit SoftmaxCrossEntropy(const Options& options);

  /// Errors: also UsageError if a target is neither a class nor kNoTarget.
  LossSums evaluate(std::span<const float> logits, std::span<const TensorView> targets,
                    float row_weight) override;

  std::span<const float> gradient() const override { return gradient_.span(); }

 private:
  void smooth(std::span<float> gradient, std::size_t target, float weight) const;

  Options options_;
  Tensor gradient_;  // [rows, classes]
};

}  // namespace kolo::trainer
