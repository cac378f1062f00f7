#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

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
    std::size_t stride = 1;   ///< Rows and columns between windows; at least 1.
    std::size_t padding = 0;  ///< Rows and columns of zeros on each side of the image.
    float deviation;          ///< Deviation of initial weights; biases start at zero.
    /// False for a first layer, whose input needs no gradient; it returns an empty span.
    bool input_gradient = true;
    bool has_bias = true;  ///< Not needed before a batch norm, which has a bias.

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
  Parameter* bias_;  // null without a bias
  std::unique_ptr<Primitives> primitives_;
};

/// The maximum of each window, by default 2 × 2 without overlap; rows and columns at the end that
/// fill no window are dropped.
///
/// Shape: input [images, height, width, channels], output [images, output_height, output_width,
///        channels].
class MaxPool final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;
    std::size_t window = 2;   ///< Rows and columns.
    std::size_t stride = 2;   ///< Rows and columns between windows; at least 1.
    std::size_t padding = 0;  ///< Rows and columns on each side, which no window takes; < window.

    std::size_t output_height() const { return (height + 2 * padding - window) / stride + 1; }
    std::size_t output_width() const { return (width + 2 * padding - window) / stride + 1; }
  };

  /// Errors: UsageError for images smaller than the window. `device` outlives the layer.
  MaxPool(Device& device, const Options& options);
  ~MaxPool() override;

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

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
