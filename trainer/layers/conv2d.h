#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

class Device;

/// Two-dimensional convolution.
///
/// Shape: input [images, height, width, input_channels], weight [output_channels, input_channels,
///        kernel, kernel], output [images, output_height, output_width, output_channels].
///        Registers `name`.weight and, if there is one, `name`.bias.
class Conv2d final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t input_channels;
    std::size_t output_channels;
    std::size_t kernel;
    std::size_t stride = 1;   ///< Rows and columns from one window to the next; at least 1.
    std::size_t padding = 0;  ///< Rows and columns of zeros on each side of the image.
    float deviation;          ///< Deviation of initial weights; biases start at zero.
    /// False for a first layer, whose input needs no gradient; it returns an empty span.
    bool input_gradient = true;
    bool has_bias = true;  ///< Not needed in front of a batch norm, which has one.

    std::size_t output_height() const { return (height + 2 * padding - kernel) / stride + 1; }
    std::size_t output_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  };

  /// Errors: UsageError when the kernel is larger than the image. `device` outlives the layer.
  Conv2d(Device& device, ParameterSet& parameters, const std::string& name, const Options& options);
  ~Conv2d() override;

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  struct Primitives;
  Parameter& weight_;
  Parameter* bias_;  // null without one
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace kolo::trainer
