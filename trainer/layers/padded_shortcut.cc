#include "trainer/layers/padded_shortcut.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo::trainer {

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
  // The added channels were zero from the start and stay so.
  for_pixels([&](std::size_t from, std::size_t to) {
    std::copy_n(input.data() + from, options_.input_channels, output_.data() + to);
  });
  return output_.span();
}

std::span<const float> PaddedShortcut::backward(std::span<const float> output_gradient) {
  // Pixels that were left out have no gradient, from the start on.
  for_pixels([&](std::size_t from, std::size_t to) {
    std::copy_n(output_gradient.data() + to, options_.input_channels,
                input_gradient_.data() + from);
  });
  return input_gradient_.span();
}

}  // namespace kolo::trainer
