#include "trainer/layers/residual_block.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"
#include "trainer/layers/images.h"
#include "trainer/layers/normalization.h"

namespace kolo::trainer {
namespace {

struct Convolution {
  std::size_t height;
  std::size_t width;
  std::size_t input_channels;
  std::size_t kernel;
  std::size_t stride;
};

/// Appends a convolution called `conv` and its batch norm called `norm`.
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

}  // namespace

PaddedShortcut::PaddedShortcut(const Options& o)
    : options_(o),
      output_({o.images, (o.height + o.stride - 1) / o.stride, (o.width + o.stride - 1) / o.stride,
               o.output_channels}),
      input_gradient_({o.images, o.height, o.width, o.input_channels}) {
  check(o.output_channels >= o.input_channels, "a padded shortcut does not lose channels");
}

template <typename Visit>
void PaddedShortcut::for_pixels(const Visit& visit) const {
  const Options& o = options_;
  std::size_t to = 0;
  for (std::size_t image = 0; image < o.images; ++image) {
    for (std::size_t y = 0; y < o.height; y += o.stride) {
      for (std::size_t x = 0; x < o.width; x += o.stride) {
        visit(((image * o.height + y) * o.width + x) * o.input_channels, to);
        to += o.output_channels;
      }
    }
  }
}

std::span<const float> PaddedShortcut::forward(std::span<const float> input, const Pass&) {
  // The added channels of `output_` are zero from its construction on.
  for_pixels([&](std::size_t from, std::size_t to) {
    std::copy_n(input.data() + from, options_.input_channels, output_.data() + to);
  });
  return output_.span();
}

std::span<const float> PaddedShortcut::backward(std::span<const float> output_gradient) {
  // The gradient of skipped pixels is zero from the construction of `input_gradient_` on.
  for_pixels([&](std::size_t from, std::size_t to) {
    std::copy_n(output_gradient.data() + to, options_.input_channels,
                input_gradient_.data() + from);
  });
  return input_gradient_.span();
}

ResidualBlock::ResidualBlock(Device& device, ParameterSet& parameters, const std::string& name,
                             const Options& o) {
  const std::size_t outputs = o.images * o.output_height() * o.output_width() * o.output_channels;
  auto& sum = append<Residual>(o.images * o.height * o.width * o.input_channels, outputs);
  append<Relu>(outputs);
  append_convolution(sum.main(), device, parameters, name + ".conv1", name + ".norm1", o,
                     {.height = o.height,
                      .width = o.width,
                      .input_channels = o.input_channels,
                      .kernel = 3,
                      .stride = o.stride});
  sum.main().append<Relu>(outputs);
  append_convolution(sum.main(), device, parameters, name + ".conv2", name + ".norm2", o,
                     {.height = o.output_height(),
                      .width = o.output_width(),
                      .input_channels = o.output_channels,
                      .kernel = 3,
                      .stride = 1});
  if (o.keeps_size()) return;
  if (o.shortcut == Shortcut::kPadded) {
    sum.shortcut().append<PaddedShortcut>(
        PaddedShortcut::Options{.images = o.images,
                                .height = o.height,
                                .width = o.width,
                                .input_channels = o.input_channels,
                                .output_channels = o.output_channels,
                                .stride = o.stride});
  } else {
    append_convolution(sum.shortcut(), device, parameters, name + ".shortcut_conv",
                       name + ".shortcut_norm", o,
                       {.height = o.height,
                        .width = o.width,
                        .input_channels = o.input_channels,
                        .kernel = 1,
                        .stride = o.stride});
  }
}

}  // namespace kolo::trainer
