#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Sums of losses over rows, from which means over many batches and ranks are computed.
struct LossSums {
  double loss = 0.0;   ///< Sum of the loss over rows.
  double score = 0.0;  ///< Sum of the score over rows, from which the metric is computed.
  double rows = 0.0;

  LossSums& operator+=(const LossSums& other) {
    loss += other.loss;
    score += other.score;
    rows += other.rows;
    return *this;
  }
};

/// How a task rates a model besides its loss: a number computed from the mean score.
struct Metric {
  std::string name = "accuracy";
  bool is_higher_better = true;
  bool is_share = true;  ///< Whether the value is in [0, 1] and shown in per cent.
  double (*value)(double mean_score) = [](double mean_score) { return mean_score; };

  double of(const LossSums& sums) const { return value(sums.score / sums.rows); }
};

/// Describes a value of the metric, as in "accuracy 97.12 %".
std::string describe(const Metric& metric, double value);

/// Compares the output of a model with the targets of a batch, and computes the gradient of the
/// loss with respect to the output.
///
/// Rows after the samples of a short batch are padding: they do not count, and their gradient is
/// zero. So a model of fixed shape can process a short or empty batch.
/// Threads: one.
class Loss {
 public:
  virtual ~Loss() = default;

  /// Computes loss and score of a batch, and the gradient, which is multiplied by `row_weight`.
  /// Errors: UsageError if shapes do not fit.
  virtual LossSums evaluate(std::span<const float> output, std::span<const TensorView> targets,
                            float row_weight) = 0;

  /// The gradient of the loss that the last `evaluate` computed, in the output's shape.
  virtual std::span<const float> gradient() const = 0;
};

/// Softmax cross-entropy of rows of logits, in nats. The score of a row is 1 if its largest logit
/// is the target's, otherwise 0.
///
/// Targets: one int32 tensor, with each row's class, or kNoTarget for a row that does not count.
class SoftmaxCrossEntropy final : public Loss {
 public:
  struct Options {
    std::size_t rows;
    std::size_t classes;
    /// Share of each target that gradients spread over all classes, in [0, 1); losses ignore it.
    /// Source: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016.
    float label_smoothing = 0.0f;
  };

  explicit SoftmaxCrossEntropy(const Options& options);

  /// Errors: UsageError if shapes do not fit, or if a target is neither a class nor kNoTarget.
  LossSums evaluate(std::span<const float> logits, std::span<const TensorView> targets,
                    float row_weight) override;

  std::span<const float> gradient() const override { return gradient_.span(); }

 private:
  void smooth(std::span<float> gradient, std::size_t target, float weight) const;

  Options options_;
  Tensor gradient_;  // [rows, classes]
};

/// Half the squared difference between each output number and its target. The score of a row is the
/// squared difference.
///
/// Targets: one float32 tensor with a number for each row.
class SquaredError final : public Loss {
 public:
  explicit SquaredError(std::size_t rows) : gradient_({rows}) {}

  LossSums evaluate(std::span<const float> output, std::span<const TensorView> targets,
                    float row_weight) override;

  std::span<const float> gradient() const override { return gradient_.span(); }

 private:
  Tensor gradient_;  // [rows]
};

}  // namespace kolo::trainer
