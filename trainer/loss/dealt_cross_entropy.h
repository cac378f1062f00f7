#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/loss/loss.h"

namespace kolo::trainer {

/// Computes SoftmaxCrossEntropy if ranks divide the classes: each rank has the logits of its part
/// of the classes, and computes the gradient of these logits. The ranks exchange four numbers per
/// row instead of the logits. The sums are equal on all ranks.
///
/// Collective over the ranks that divide the classes. Threads: one.
class DealtCrossEntropy final : public Loss {
 public:
  /// `options` are the options of the whole loss, over all classes.
  DealtCrossEntropy(const SoftmaxCrossEntropy::Options& options, const TensorRanks& ranks);

  LossSums evaluate(std::span<const float> logits, std::span<const TensorView> targets,
                    float row_weight) override;

  std::span<const float> gradient() const override { return gradient_.span(); }

 private:
  /// The numbers about a row that a rank computes from the logits of its part of the classes.
  struct Known {
    double log_sum;       ///< Logarithm of the sum of the exponentials of the logits.
    double target_logit;  ///< Logit of the target, or 0 if another rank has the target.
    double best_logit;    ///< Largest logit.
    double best_class;    ///< First class with the largest logit.
  };

  /// Whether this rank has class `target`.
  bool has(std::size_t target) const { return target - first_ < classes_; }
  /// Replaces the logits of a row by their softmax over the classes of this rank, and returns the
  /// numbers about the row.
  Known look_at(std::span<float> row, std::size_t target) const;
  /// Returns the numbers about a row over all classes, from the numbers of all ranks.
  Known combine(std::size_t row) const;

  const SoftmaxCrossEntropy::Options options_;
  const TensorRanks ranks_;
  const std::size_t first_;    // first class of this rank
  const std::size_t classes_;  // number of classes of this rank
  Tensor gradient_;            // [rows, classes_]
  std::vector<Known> known_;   // [ways, rows]
};

}  // namespace kolo::trainer
