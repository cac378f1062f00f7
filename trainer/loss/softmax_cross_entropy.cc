#include "trainer/loss/softmax_cross_entropy.h"

#include <algorithm>

#include "comm/base/check.h"
#include "trainer/kernels/softmax.h"

namespace kolo::trainer {

LossSums SoftmaxCrossEntropy::evaluate(std::span<const float> logits,
                                       std::span<const std::uint8_t> targets, float row_weight) {
  const std::size_t rows = gradient_.shape()[0];
  const std::size_t classes = gradient_.shape()[1];
  check(logits.size() == rows * classes && targets.size() <= rows,
        "a loss takes the logits and at most the targets it was made for");
  LossSums sums;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    check(targets[row] < classes, "a target is one of the classes");
    const auto source = logits.subspan(row * classes, classes);
    const auto into = gradient_.span().subspan(row * classes, classes);
    const auto best = std::max_element(source.begin(), source.end());
    std::copy(source.begin(), source.end(), into.begin());
    sums.loss += static_cast<double>(softmax_cross_entropy(into, targets[row], row_weight));
    if (best - source.begin() == targets[row]) sums.correct += 1.0;
  }
  const auto padding = gradient_.span().subspan(targets.size() * classes);
  std::fill(padding.begin(), padding.end(), 0.0f);
  sums.rows = static_cast<double>(targets.size());
  return sums;
}

}  // namespace kolo::trainer
