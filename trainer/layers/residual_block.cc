#include "trainer/layers/residual_block.h"

#include <cmath>

#include "trainer/kernels/vector.h"
#include "trainer/layers/batch_norm.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/padded_shortcut.h"

namespace kolo::trainer {
namespace {

struct Convolution {
  std::size_t height;
  std::size_t width;
  std::size_t input_channels;
  std::size_t kernel;
  std::size_t stride;
};

/// Appends a convolution and its batch norm, of these names.
void append_convolution(Sequential& layers, Device& device, ParameterSet& parameters,
                        const std::string& conv, const std::string& norm,
                        const ResidualBlock::Options& o, const Convolution& c) {
  const auto inputs = static_cast<float>(c.input_channels * c.kernel * c.kernel);
  layers.append<Conv2d>(device, parameters, conv,
                        Conv2d::Options{.images = o.images,
                                        .height = c.height,
                                        .width = c.width,
                                        .input_channels = c.input_channels,
                                        .output_channels = o.output_channels,
                                        .kernel = c.kernel,
                                        .stride = c.stride,
                                        .padding = c.kernel / 2,
                                        .deviation = std::sqrt(2.0f / inputs),
                                        .has_bias = false});
  layers.append<BatchNorm>(
      parameters, norm,
      BatchNorm::Options{.samples = o.images,
                         .rows_per_sample = o.output_height() * o.output_width(),
                         .channels = o.output_channels,
                         .sum_over_ranks = o.sum_over_ranks});
}

Shape output_shape(const ResidualBlock::Options& o) {
  return {o.images, o.output_height(), o.output_width(), o.output_channels};
}

}  // namespace

ResidualBlock::ResidualBlock(Device& device, ParameterSet& parameters, const std::string& name,
                             const Options& o)
    : sum_(output_shape(o)),
      relu_(element_count(output_shape(o))),
      input_gradient_({o.images, o.height, o.width, o.input_channels}) {
  append_convolution(main_, device, parameters, name + ".conv1", name + ".norm1", o,
                     {.height = o.height,
                      .width = o.width,
                      .input_channels = o.input_channels,
                      .kernel = 3,
                      .stride = o.stride});
  main_.append<Relu>(sum_.size());
  append_convolution(main_, device, parameters, name + ".conv2", name + ".norm2", o,
                     {.height = o.output_height(),
                      .width = o.output_width(),
                      .input_channels = o.output_channels,
                      .kernel = 3,
                      .stride = 1});
  if (o.keeps_size()) return;
  if (o.shortcut == Shortcut::kPadded) {
    shortcut_.append<PaddedShortcut>(PaddedShortcut::Options{.images = o.images,
                                                             .height = o.height,
                                                             .width = o.width,
                                                             .input_channels = o.input_channels,
                                                             .output_channels = o.output_channels,
                                                             .stride = o.stride});
  } else {
    append_convolution(shortcut_, device, parameters, name + ".shortcut_conv",
                       name + ".shortcut_norm", o,
                       {.height = o.height,
                        .width = o.width,
                        .input_channels = o.input_channels,
                        .kernel = 1,
                        .stride = o.stride});
  }
}

std::span<const float> ResidualBlock::forward(std::span<const float> input, const Pass& pass) {
  const std::span<const float> main = main_.forward(input, pass);
  add(main, shortcut_.forward(input, pass), sum_.span());
  return relu_.forward(sum_.span(), pass);
}

std::span<const float> ResidualBlock::backward(std::span<const float> output_gradient) {
  const std::span<const float> gradient = relu_.backward(output_gradient);
  const std::span<const float> main = main_.backward(gradient);
  add(main, shortcut_.backward(gradient), input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
