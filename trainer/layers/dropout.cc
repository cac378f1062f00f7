#include "trainer/layers/dropout.h"

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

Dropout::Dropout(const Options& options)
    : width_(options.width),
      mask_(options.mask),
      factors_({options.mask.share > 0.0f ? options.samples : 0, options.width}),
      output_(factors_.shape()),
      input_gradient_(factors_.shape()) {}

std::span<const float> Dropout::forward(std::span<const float> input, const Pass& pass) {
  if (!mask_.begin(pass)) return input;
  for (std::size_t i = 0; i < factors_.shape()[0]; ++i) {
    mask_.fill(i, 0, factors_.span().subspan(i * width_, width_));
  }
  multiply_elements(input, factors_.span(), output_.span());
  return output_.span();
}

std::span<const float> Dropout::backward(std::span<const float> output_gradient) {
  if (!mask_.is_active()) return output_gradient;
  multiply_elements(output_gradient, factors_.span(), input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
