#pragma once

#include <cstddef>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/compute/convolution.h"
#include "trainer/cuda/kernels/filter.h"
#include "trainer/cuda/parameters/device_parameters.h"
#include "trainer/cuda/parameters/registration.h"

namespace kolo::trainer::cuda {

/// Two-dimensional convolution with bias, stride 1, no padding.
///
/// Channels: x has its channels padded with zeros to a multiple of kChannelMultiple by its
/// producer; the gradient of the weight omits the padding. Output channels must be such a multiple.
/// Shape:    x [images, height, width, padded input channels], y [images, height - kernel + 1,
///           width - kernel + 1, output channels] of the context's dtype.
/// Errors:   UsageError for other output channels.
class Conv2d {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t input_channels;
    std::size_t output_channels;
    std::size_t kernel;
  };

  Conv2d(Context& context, DeviceParameters& parameters, const ConvolutionParameters& names,
         const Options& options);

  void forward(const void* x, void* y);
  /// Overwrites the gradients of weight and bias and reports them ready.
  void backward_parameters(const void* x, const void* dy);
  void backward_input(const void* dy, void* dx);

  std::size_t output_count() const { return places_ * filter_shape_.outputs; }

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& weight_;
  DeviceParameter& bias_;
  FilterShape filter_shape_;
  std::size_t places_;  // images · output height · output width
  Convolution convolution_;
  DeviceMemory filter_, filter_gradient_;  // in cuDNN's layout
};

}  // namespace kolo::trainer::cuda
