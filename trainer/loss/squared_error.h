#pragma once

#include <cstddef>
#include <span>

#include "trainer/loss/loss.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Half the squared difference of each number of the output from its target. The score is the
/// squared difference.
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
