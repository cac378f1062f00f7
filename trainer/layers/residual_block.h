#pragma once

#include <cstddef>
#include <string>

#include "trainer/layers/elementwise.h"
#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// A shortcut without parameters around layers that change the size of an image: it takes every
/// stride-th row and column of pixels, and fills added channels with zeros.
///
/// Shape:  the input is [images, height, width, input_channels], the output [images, ceil(height /
///         stride), ceil(width / stride), output_channels], with output_channels >= input_channels.
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

class Device;

/// A residual block: y = relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)), with 3 × 3
/// convolutions and batch norm.
///
/// The shortcut returns x if the block keeps the size. Otherwise it is a `PaddedShortcut` (option A
/// of the source) or a strided 1 × 1 convolution with batch norm (option B).
///
/// Shape:  the input is [images, height, width, input_channels], the output [images, ceil(height /
///         stride), ceil(width / stride), output_channels]. Registers `name`.conv1, .norm1, .conv2,
///         .norm2 and, for option B, .shortcut_conv and .shortcut_norm.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
class ResidualBlock final : public Sequential {
 public:
  enum class Shortcut { kPadded, kProjection };

  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t input_channels;
    std::size_t output_channels;
    std::size_t stride = 1;
    Shortcut shortcut;
    RankSums sum_over_ranks = {};  ///< Sums over ranks for the batch norms; see BatchNorm.

    std::size_t output_height() const { return (height + stride - 1) / stride; }
    std::size_t output_width() const { return (width + stride - 1) / stride; }
    bool keeps_size() const { return stride == 1 && input_channels == output_channels; }
  };

  /// `device` outlives the layer.
  ResidualBlock(Device& device, ParameterSet& parameters, const std::string& name,
                const Options& options);
};

}  // namespace kolo::trainer
