#include "trainer/layers/gelu.h"

#include "trainer/kernels/activation.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

std::span<const float> Gelu::forward(std::span<const float> input, const Pass&) {
  const std::span<float> output = output_.span().first(input.size());
  gelu(input, output, slope_.span());
  return output;
}

std::span<const float> Gelu::backward(std::span<const float> output_gradient) {
  multiply_elements(output_gradient, slope_.span(), input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
