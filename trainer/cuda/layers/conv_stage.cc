#include "trainer/cuda/layers/conv_stage.h"

#include "trainer/cuda/kernels/activation.h"

namespace kolo::trainer::cuda {
namespace {

PoolingShape pooling_shape(const Conv2d::Options& o) {
  return {.images = o.images,
          .height = o.height - o.kernel + 1,
          .width = o.width - o.kernel + 1,
          .channels = o.output_channels};
}

std::size_t pooled_count(const PoolingShape& s) {
  return s.images * (s.height / 2) * (s.width / 2) * s.channels;
}

}  // namespace

ConvStage::ConvStage(Context& context, DeviceParameters& parameters,
                     const ConvolutionParameters& names, const Conv2d::Options& options)
    : context_(context),
      convolution_(context, parameters, names, options),
      pooling_(context.dnn, context.dtype(), pooling_shape(options)),
      output_count_(pooled_count(pooling_shape(options))),
      convolved_(context.activations(convolution_.output_count())),
      pooled_(context.activations(output_count_)),
      output_(context.activations(output_count_)),
      convolved_gradient_(context.activations(convolution_.output_count())) {}

const void* ConvStage::forward(const void* x) {
  convolution_.forward(x, convolved_.data());
  pooling_.forward(convolved_.data(), pooled_.data());
  bias_activation(context_.stream(), {.activation = Activation::kRelu,
                                      .dtype = context_.dtype(),
                                      .rows = 1,
                                      .width = output_count_,
                                      .x = pooled_.data(),
                                      .bias = nullptr,
                                      .before = nullptr,
                                      .y = output_.data()});
  return output_.data();
}

void ConvStage::backward_relu(void* y_gradient) {
  activation_backward(context_.stream(), Activation::kRelu, context_.dtype(), pooled_.data(),
                      output_count_, y_gradient);
}

void ConvStage::backward_parameters(const void* x, const void* before_relu_gradient) {
  pooling_.backward(convolved_.data(), pooled_.data(), before_relu_gradient,
                    convolved_gradient_.data());
  convolution_.backward_parameters(x, convolved_gradient_.data());
}

}  // namespace kolo::trainer::cuda
