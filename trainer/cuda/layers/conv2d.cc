#include "trainer/cuda/layers/conv2d.h"

#include "comm/base/check.h"
#include "trainer/cuda/kernels/activation.h"
#include "trainer/cuda/kernels/column_sums.h"

namespace kolo::trainer::cuda {
namespace {

FilterShape filter_shape(const Conv2d::Options& o) {
  check(o.output_channels % kChannelMultiple == 0,
        "a convolution on a CUDA device has a multiple of 8 output channels");
  return {.outputs = o.output_channels,
          .inputs = o.input_channels,
          .padded_inputs = round_up(o.input_channels, kChannelMultiple),
          .kernel = o.kernel};
}

}  // namespace

Conv2d::Conv2d(Context& context, DeviceParameters& parameters, const ConvolutionParameters& names,
               const Options& o)
    : context_(context),
      parameters_(parameters),
      weight_(parameters.of(names.weight)),
      bias_(parameters.of(names.bias)),
      filter_shape_(filter_shape(o)),
      places_(o.images * (o.height - o.kernel + 1) * (o.width - o.kernel + 1)),
      convolution_(context.dnn, context.dtype(),
                   {.images = o.images,
                    .height = o.height,
                    .width = o.width,
                    .input_channels = filter_shape_.padded_inputs,
                    .output_channels = o.output_channels,
                    .kernel = o.kernel}),
      filter_(context.activations(filter_shape_.packed_count())),
      filter_gradient_(context.activations(filter_shape_.packed_count())) {
  context.reserve_scratch(column_sum_parts(places_) * o.output_channels);
}

void Conv2d::forward(const void* x, void* y) {
  const NativeStream stream = context_.stream();
  pack_filter(stream, filter_shape_, weight_.value, context_.dtype(), filter_.data());
  convolution_.forward(x, filter_.data(), y);
  bias_activation(stream, {.activation = Activation::kNone,
                           .dtype = context_.dtype(),
                           .rows = places_,
                           .width = filter_shape_.outputs,
                           .x = y,
                           .bias = bias_.value,
                           .before = nullptr,
                           .y = y});
}

void Conv2d::backward_parameters(const void* x, const void* dy) {
  const NativeStream stream = context_.stream();
  convolution_.backward_filter(x, dy, filter_gradient_.data());
  unpack_filter(stream, filter_shape_, context_.dtype(), filter_gradient_.data(), weight_.gradient);
  parameters_.ready(weight_);
  sum_columns(stream, {.matrix = dy,
                       .dtype = context_.dtype(),
                       .rows = places_,
                       .width = filter_shape_.outputs,
                       .partials = context_.scratch(),
                       .into = bias_.gradient});
  parameters_.ready(bias_);
}

void Conv2d::backward_input(const void* dy, void* dx) {
  convolution_.backward_data(dy, filter_.data(), dx);
}

}  // namespace kolo::trainer::cuda
