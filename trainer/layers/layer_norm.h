#pragma once

#include <cstddef>
#include <string>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Normalises each row to mean 0 and variance 1, then applies a learnt gain and bias.
///
/// Shape: x and y are [rows, width]; x may have fewer rows if no backward pass follows. Registers
/// `name`.gain and `name`.bias.
class LayerNorm final : public Layer {
 public:
  LayerNorm(ParameterSet& parameters, const std::string& name, std::size_t rows, std::size_t width);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Parameter& gain_;
  Parameter& bias_;
  Tensor output_;
  Tensor mean_;
  Tensor rstd_;
  Tensor input_gradient_;
  std::span<const float> input_;
};

}  // namespace kolo::trainer
