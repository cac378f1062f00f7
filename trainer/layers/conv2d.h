#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

class Device;

/// Two-dimensional convolution with bias, stride 1, no padding.
///
/// Shape: input [images, height, width, input_channels], weight [output_channels, input_channels,
///        kernel, kernel], output [images, height - kernel + 1, width - kernel + 1,
///        output_channels]. Registers `name`.weight and `name`.bias.
class Conv2d final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t input_channels;
    std::size_t output_channels;
    std::size_t kernel;
    float deviation;  ///< Of the initial weights; biases start at zero.
    /// A first layer has nobody to hand the gradient of its input to; it returns an empty span.
    bool input_gradient = true;
  };

  /// Errors: UsageError when the kernel is larger than the image. `device` outlives the layer.
  Conv2d(Device& device, ParameterSet& parameters, const std::string& name, const Options& options);
  ~Conv2d() override;

  std::span<const float> forward(std::span<const float> input) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  struct Primitives;
  Parameter& weight_;
  Parameter& bias_;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace kolo::trainer
