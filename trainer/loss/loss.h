#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/layers/layer.h"
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
/// Ranks may divide the classes: each rank then has the logits and computes the gradient of its
/// part of the classes. They exchange four numbers per row instead of the logits, and get equal
/// sums.
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
    TensorRanks ranks = {};  ///< Ranks that divide the classes; `evaluate` is collective over them.
  };

  explicit SoftmaxCrossEntropy(const Options& options);

  /// Errors: UsageError if shapes do not fit, or if a target is neither a class nor kNoTarget.
  LossSums evaluate(std::span<const float> logits, std::span<const TensorView> targets,
                    float row_weight) override;

  std::span<const float> gradient() const override { return gradient_.span(); }

 private:
  /// The statistics of a row that a rank gets from the logits of its part of the classes.
  struct Known {
    float best_logit;    // largest logit
    float log_rest;      // logarithm of the sum of exponentials of the logits, minus best_logit
    float best_class;    // first class with the largest logit
    float target_logit;  // logit of the target, or 0 if another rank has the target

    double log_sum() const { return double{best_logit} + double{log_rest}; }
  };

  /// Whether this rank has class `target`.
  bool has(std::size_t target) const { return target - first_ < classes_; }
  std::span<float> row_of(std::size_t row) {
    return gradient_.span().subspan(row * classes_, classes_);
  }
  /// Computes the softmax of each row of `all` over this rank's classes, and exchanges what the
  /// ranks know about the rows.
  void exchange(std::span<const float> all, std::span<const std::int32_t> targets);
  /// Turns the softmax of a row over this rank's classes into the gradient, for `target`. Adds loss
  /// and score of the row to `sums`.
  void combine(std::size_t row, std::size_t target, float weight, LossSums& sums);
  void smooth(std::span<float> gradient, std::size_t target, float weight) const;

  Options options_;
  std::size_t first_;         // first class of this rank
  std::size_t classes_;       // number of classes of this rank
  Tensor gradient_;           // [rows, classes_]
  std::vector<Known> known_;  // [ways, rows]; empty unless ranks divide the classes
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
