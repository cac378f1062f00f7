#pragma once

#include <cstddef>

#include "trainer/cuda/compute/max_pooling.h"
#include "trainer/cuda/layers/conv2d.h"

namespace kolo::trainer::cuda {

/// y = relu(pool(conv(x))): the convolutional stage of LeNet. ReLU after the pooling gives the same
/// result from a quarter of the elements.
///
/// Shape: x as Conv2d; y [images, (height - kernel + 1) / 2, (width - kernel + 1) / 2,
///        output_channels] of the context's dtype, which belongs to the stage.
class ConvStage {
 public:
  ConvStage(Context& context, DeviceParameters& parameters, const ConvolutionParameters& names,
            const Conv2d::Options& options);

  const void* forward(const void* x);

  /// In place: converts the gradient of y to that of the input of ReLU. A linear layer after the
  /// stage does this itself.
  void backward_relu(void* y_gradient);
  /// Computes the gradients of weight and bias from the result and reports them ready.
  void backward_parameters(const void* x, const void* before_relu_gradient);
  /// After `backward_parameters`: the gradient of x.
  void backward_input(void* dx) { convolution_.backward_input(convolved_gradient_.data(), dx); }

  const void* output() const { return output_.data(); }
  std::size_t output_count() const { return output_count_; }

 private:
  Context& context_;
  Conv2d convolution_;
  MaxPooling pooling_;
  std::size_t output_count_;
  DeviceMemory convolved_, pooled_, output_;
  DeviceMemory convolved_gradient_;
};

}  // namespace kolo::trainer::cuda
