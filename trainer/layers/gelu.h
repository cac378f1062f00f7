#pragma once

#include <cstddef>

#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// y = x · Φ(x), in the tanh approximation, for each of `count` elements, or of fewer if no
/// backward pass follows.
class Gelu final : public Layer {
 public:
  explicit Gelu(std::size_t count) : output_({count}), slope_({count}), input_gradient_({count}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Tensor output_;
  Tensor slope_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
