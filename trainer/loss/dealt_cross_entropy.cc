#include "trainer/loss/dealt_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

DealtCrossEntropy::DealtCrossEntropy(const SoftmaxCrossEntropy::Options& options,
                                     const TensorRanks& ranks)
    : options_(options),
      ranks_(ranks),
      first_(ranks.outputs().begin(options.classes)),
      classes_(ranks.outputs().end(options.classes) - first_),
      gradient_({options.rows, classes_}),
      known_(ranks.ways * options.rows) {}

DealtCrossEntropy::Known DealtCrossEntropy::look_at(std::span<float> row,
                                                    std::size_t target) const {
  const auto best = static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
  Known known{.log_sum = row[best],
              .target_logit = has(target) ? double{row[target - first_]} : 0.0,
              .best_logit = row[best],
              .best_class = static_cast<double>(first_ + best)};
  // The kernel returns the loss of class `best`: the logarithm of the sum, minus its logit. It also
  // subtracts 1 from the softmax of that class.
  known.log_sum += double{softmax_cross_entropy(row, best, 1.0f)};
  row[best] += 1.0f;
  return known;
}

DealtCrossEntropy::Known DealtCrossEntropy::combine(std::size_t row) const {
  Known all = known_[row];
  for (std::size_t rank = 1; rank < ranks_.ways; ++rank) {
    const Known& known = known_[rank * options_.rows + row];
    const double larger = std::max(all.log_sum, known.log_sum);
    all.log_sum =
        larger + std::log(std::exp(all.log_sum - larger) + std::exp(known.log_sum - larger));
    all.target_logit += known.target_logit;
    if (known.best_logit <= all.best_logit) continue;
    all.best_logit = known.best_logit;
    all.best_class = known.best_class;
  }
  return all;
}

LossSums DealtCrossEntropy::evaluate(std::span<const float> logits,
                                     std::span<const TensorView> targets, float row_weight) {
  const std::span<const std::int32_t> classes_of = targets[0].as<std::int32_t>();
  check(logits.size() == gradient_.size() && classes_of.size() <= options_.rows,
        "a loss takes the logits and at most the targets it was made for");
  const auto row_of = [this](std::size_t row) {
    return gradient_.span().subspan(row * classes_, classes_);
  };
  Known* const mine = known_.data() + ranks_.index * options_.rows;
  std::ranges::copy(logits, gradient_.data());
  for (std::size_t row = 0; row < classes_of.size(); ++row) {
    mine[row] = look_at(row_of(row), static_cast<std::size_t>(classes_of[row]));
  }
  static_assert(sizeof(Known) == 4 * sizeof(double));
  ranks_.gather("logits", {&known_[0].log_sum, 4 * known_.size()});
  LossSums sums;
  for (std::size_t row = 0; row < options_.rows; ++row) {
    const std::span<float> gradient = row_of(row);
    if (row >= classes_of.size() || classes_of[row] == kNoTarget) {
      std::ranges::fill(gradient, 0.0f);
      continue;
    }
    const auto target = static_cast<std::size_t>(classes_of[row]);
    check(target < options_.classes, "a target is one of the classes");
    const Known all = combine(row);
    scale(gradient, row_weight * static_cast<float>(std::exp(mine[row].log_sum - all.log_sum)));
    const float smoothed = row_weight * options_.label_smoothing;
    for (float& g : gradient) g -= smoothed / static_cast<float>(options_.classes);
    if (has(target)) gradient[target - first_] -= row_weight - smoothed;
    sums.loss += all.log_sum - all.target_logit;
    if (all.best_class == static_cast<double>(target)) sums.score += 1.0;
    sums.rows += 1.0;
  }
  return sums;
}

}  // namespace kolo::trainer
