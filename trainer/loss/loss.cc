#include "trainer/loss/loss.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

std::string describe(const Metric& metric, double value) {
  if (metric.is_share) return fmt::format("{} {:.2f} %", metric.name, 100.0 * value);
  return fmt::format("{} {:.4f}", metric.name, value);
}

SoftmaxCrossEntropy::SoftmaxCrossEntropy(const Options& options)
    : options_(options), gradient_({options.rows, options.classes}) {}

LossSums SoftmaxCrossEntropy::evaluate(std::span<const float> logits,
                                       std::span<const TensorView> targets, float row_weight) {
  const std::span<const std::int32_t> classes_of = targets[0].as<std::int32_t>();
  const std::size_t classes = options_.classes;
  check(logits.size() == gradient_.size() && classes_of.size() <= options_.rows,
        "a loss takes the logits and at most the targets it was made for");
  LossSums sums;
  for (std::size_t row = 0; row < classes_of.size(); ++row) {
    if (classes_of[row] == kNoTarget) {
      std::ranges::fill(gradient_.span().subspan(row * classes, classes), 0.0f);
      continue;
    }
    const auto target = static_cast<std::size_t>(classes_of[row]);
    check(target < classes, "a target is one of the classes");
    const auto source = logits.subspan(row * classes, classes);
    const auto into = gradient_.span().subspan(row * classes, classes);
    const auto best = std::max_element(source.begin(), source.end());
    std::copy(source.begin(), source.end(), into.begin());
    sums.loss += static_cast<double>(softmax_cross_entropy(into, target, row_weight));
    if (static_cast<std::size_t>(best - source.begin()) == target) sums.score += 1.0;
    smooth(into, target, row_weight);
    sums.rows += 1.0;
  }
  const auto padding = gradient_.span().subspan(classes_of.size() * classes);
  std::fill(padding.begin(), padding.end(), 0.0f);
  return sums;
}

/// Changes a row's gradient to that of a smoothed target, in which a share `label_smoothing` is
/// spread over all classes. The reported loss is that of the unsmoothed target.
void SoftmaxCrossEntropy::smooth(std::span<float> gradient, std::size_t target,
                                 float weight) const {
  if (options_.label_smoothing == 0.0f) return;
  const float moved = weight * options_.label_smoothing;
  const float share = moved / static_cast<float>(options_.classes);
  for (float& g : gradient) g -= share;
  gradient[target] += moved;
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
