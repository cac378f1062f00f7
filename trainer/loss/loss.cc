#include "trainer/loss/loss.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

std::string describe(const Metric& metric, double value) {
  if (metric.is_share) return fmt::format("{} {:.2f} %", metric.name, 100.0 * value);
  return fmt::format("{} {:.4f}", metric.name, value);
}

SoftmaxCrossEntropy::SoftmaxCrossEntropy(const Options& options)
    : options_(options),
      first_(options.ranks.outputs().begin(options.classes)),
      classes_(options.ranks.outputs().end(options.classes) - first_),
      gradient_({options.rows, classes_}),
      known_(options.ranks.deal() ? options.ranks.ways * options.rows : 0) {}

LossSums SoftmaxCrossEntropy::evaluate(std::span<const float> logits,
                                       std::span<const TensorView> targets, float row_weight) {
  const std::span<const std::int32_t> classes_of = targets[0].as<std::int32_t>();
  check(logits.size() == gradient_.size() && classes_of.size() <= options_.rows,
        "a loss takes the logits and at most the targets it was made for");
  if (options_.ranks.deal()) exchange(logits, classes_of);
  LossSums sums;
  for (std::size_t row = 0; row < options_.rows; ++row) {
    const std::span<float> into = row_of(row);
    if (row >= classes_of.size() || classes_of[row] == kNoTarget) {
      std::ranges::fill(into, 0.0f);
      continue;
    }
    const auto target = static_cast<std::size_t>(classes_of[row]);
    check(target < options_.classes, "a target is one of the classes");
    if (options_.ranks.deal()) {
      combine(row, target, row_weight, sums);
    } else {
      std::ranges::copy(logits.subspan(row * classes_, classes_), into.begin());
      if (std::ranges::max_element(into) == into.begin() + classes_of[row]) sums.score += 1.0;
      sums.loss += static_cast<double>(softmax_cross_entropy(into, target, row_weight));
    }
    smooth(into, target, row_weight);
    sums.rows += 1.0;
  }
  return sums;
}

void SoftmaxCrossEntropy::exchange(std::span<const float> all,
                                   std::span<const std::int32_t> targets) {
  std::ranges::copy(all, gradient_.data());
  std::ranges::fill(known_, Known{});
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const std::span<float> logits = row_of(row);
    const auto target = static_cast<std::size_t>(targets[row]);
    const auto best = static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
    Known& known = known_[options_.ranks.index * options_.rows + row];
    known = {.best_logit = logits[best],
             .log_rest = 0.0f,
             .best_class = static_cast<float>(first_ + best),
             .target_logit = has(target) ? logits[target - first_] : 0.0f};
    // The kernel returns the loss of class `best`, and subtracts 1 from the softmax of that class.
    known.log_rest = softmax_cross_entropy(logits, best, 1.0f);
    logits[best] += 1.0f;
  }
  static_assert(sizeof(Known) == 4 * sizeof(float));
  options_.ranks.sum("logits", {&known_[0].best_logit, 4 * known_.size()});
}

void SoftmaxCrossEntropy::combine(std::size_t row, std::size_t target, float weight,
                                  LossSums& sums) {
  const Known* best = &known_[row];
  double log_sum = best->log_sum();
  double target_logit = double{best->target_logit};
  for (std::size_t rank = 1; rank < options_.ranks.ways; ++rank) {
    const Known& known = known_[rank * options_.rows + row];
    const double larger = std::max(log_sum, known.log_sum());
    log_sum = larger + std::log(std::exp(log_sum - larger) + std::exp(known.log_sum() - larger));
    target_logit += double{known.target_logit};
    if (known.best_logit > best->best_logit) best = &known;
  }
  const double own = known_[options_.ranks.index * options_.rows + row].log_sum();
  const std::span<float> gradient = row_of(row);
  scale(gradient, weight * static_cast<float>(std::exp(own - log_sum)));
  if (has(target)) gradient[target - first_] -= weight;
  sums.loss += log_sum - target_logit;
  if (best->best_class == static_cast<float>(target)) sums.score += 1.0;
}

/// Changes a row's gradient to that of a smoothed target, in which a share `label_smoothing` is
/// spread over all classes. The reported loss is that of the unsmoothed target.
void SoftmaxCrossEntropy::smooth(std::span<float> gradient, std::size_t target,
                                 float weight) const {
  if (options_.label_smoothing == 0.0f) return;
  const float moved = weight * options_.label_smoothing;
  const float share = moved / static_cast<float>(options_.classes);
  for (float& g : gradient) g -= share;
  if (has(target)) gradient[target - first_] += moved;
}

LossSums SquaredError::evaluate(std::span<const float> output, std::span<const TensorView> targets,
                                float row_weight) {
  const std::span<const float> wanted = targets[0].as<float>();
  check(output.size() == gradient_.size() && wanted.size() <= output.size(),
        "a loss takes the output and at most the targets it was made for");
  gradient_.fill(0.0f);
  LossSums sums{.rows = static_cast<double>(wanted.size())};
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    const float difference = output[row] - wanted[row];
    gradient_.data()[row] = row_weight * difference;
    const double square = double{difference} * difference;
    sums.loss += 0.5 * square;
    sums.score += square;
  }
  return sums;
}

}  // namespace kolo::trainer
