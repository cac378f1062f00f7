#pragma once

#include <cstddef>

#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// The mean of each channel over all pixels of an image.
///
/// Shape: input [images, pixels, channels], output [images, channels].
class AveragePool final : public Layer {
 public:
  AveragePool(std::size_t images, std::size_t pixels, std::size_t channels)
      : output_({images, channels}), input_gradient_({images, pixels, channels}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
