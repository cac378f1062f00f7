#include "trainer/loss/squared_error.h"

#include "comm/base/check.h"

namespace kolo::trainer {

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
