#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

class Device;

/// Two-dimensional convolution of images.
///
/// Shape: the input is [images, height, width, input_channels], the weight [output_channels,
///        input_channels, kernel, kernel], the output [images, output_height, output_width,
///        output_channels]. Registers the parameters `name`.weight and, with a bias, `name`.bias.
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
    float deviation;          ///< Standard deviation of initial weights; biases start at zero.
    /// Whether `backward` computes the gradient of the input. A first layer does not need it;
    /// `backward` then returns an empty span.
    bool input_gradient = true;
    bool has_bias = true;  ///< Whether there is a bias; before a batch norm it is not needed.

    std::size_t output_height() const { return (height + 2 * padding - kernel) / stride + 1; }
    std::size_t output_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  };

  /// `device` outlives the layer. Errors: UsageError if the kernel is larger than the image.
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

/// Computes the maximum of each window, which has 2 × 2 pixels by default. Rows and columns at the
/// end that do not fill a window are dropped.
///
/// Shape: the input is [images, height, width, channels], the output [images, output_height,
///        output_width, channels].
class MaxPool final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;
    std::size_t window = 2;   ///< Rows and columns of a window.
    std::size_t stride = 2;   ///< Rows and columns between windows; at least 1.
    std::size_t padding = 0;  ///< Rows and columns of padding on each side; below `window`.

    std::size_t output_height() const { return (height + 2 * padding - window) / stride + 1; }
    std::size_t output_width() const { return (width + 2 * padding - window) / stride + 1; }
  };

  /// `device` outlives the layer. Errors: UsageError if images are smaller than the window.
  MaxPool(Device& device, const Options& options);
  ~MaxPool() override;

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

/// Computes the mean of each channel over all pixels of an image.
///
/// Shape: the input is [images, height, width, channels], the output [images, channels].
class AveragePool final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;

    std::size_t output_height() const { return 1; }
    std::size_t output_width() const { return 1; }
  };

  explicit AveragePool(const Options& o)
      : output_({o.images, o.channels}),
        input_gradient_({o.images, o.height * o.width, o.channels}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Tensor output_;
  Tensor input_gradient_;
};

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

    std::size_t output_height() const { return (height + stride - 1) / stride; }
    std::size_t output_width() const { return (width + stride - 1) / stride; }
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
