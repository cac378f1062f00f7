#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Loss sums of batches, to compute means over many batches and ranks.
struct LossSums {
  double loss = 0.0;   ///< Summed over rows.
  double score = 0.0;  ///< The task's other measure, summed over rows; see Metric.
  double rows = 0.0;

  LossSums& operator+=(const LossSums& other) {
    loss += other.loss;
    score += other.score;
    rows += other.rows;
    return *this;
  }
};

/// A task's measure besides its loss, computed from the mean score.
struct Metric {
  std::string name = "accuracy";
  bool is_higher_better = true;
  bool is_share = true;  ///< A number in 0 … 1 that is shown in per cent.
  double (*value)(double mean_score) = [](double mean_score) { return mean_score; };

  double of(const LossSums& sums) const { return value(sums.score / sums.rows); }
};

/// "accuracy 97.12 %".
std::string describe(const Metric& metric, double value);

/// Compares the output of a model with the targets of a batch, and computes the gradient of the
/// output.
///
/// Rows beyond the samples of a short batch are padding: they do not count and their gradient is
/// zero. A short or empty batch can thus run through a model of fixed shape.
/// Threads: one.
class Loss {
 public:
  virtual ~Loss() = default;

  /// Computes the sums. Every row's gradient is multiplied by `row_weight`.
  /// Errors: UsageError if shapes do not fit.
  virtual LossSums evaluate(std::span<const float> output, std::span<const TensorView> targets,
                            float row_weight) = 0;

  /// Gradient of the last `evaluate`'s loss with respect to the output, in the output's shape.
  virtual std::span<const float> gradient() const = 0;
};

/// Softmax cross-entropy of rows of logits, in nats. The score counts the rows whose largest logit
/// is the target's.
///
/// Targets: one tensor, int32, with a class for each row, or kNoTarget for a row that does not
///          count.
class SoftmaxCrossEntropy final : public Loss {
 public:
  struct Options {
    std::size_t rows;
    std::size_t classes;
    /// Share of the target that is spread evenly over all classes in training, 0 to below 1.
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

/// Half the squared difference between each output number and its target. The score is the squared
/// difference.
///
/// Targets: one tensor, float32, with a number for each row.
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
