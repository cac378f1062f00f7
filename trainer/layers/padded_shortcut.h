#pragma once

#include <cstddef>

#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Every stride-th pixel of an image, with zeros for the channels that it lacks: a way around
/// layers that change the size, without parameters.
///
/// Shape:  input [images, height, width, input_channels], output [images, ceil(height / stride),
///         ceil(width / stride), output_channels], output_channels >= input_channels.
/// Source: option A of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
class PaddedShortcut final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t input_channels;
    std::size_t output_channels;
    std::size_t stride;
  };

  explicit PaddedShortcut(const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// Calls visit(offset in the input, offset in the output) for each pixel of the output.
  template <typename Visit>
  void for_pixels(const Visit& visit) const;

  Options options_;
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
