#include "trainer/layers/tanh.h"

#include "trainer/kernels/activation.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

std::span<const float> Tanh::forward(std::span<const float> input, const Pass&) {
  tanh(input, output_.span(), slope_.span());
  return output_.span();
}

std::span<const float> Tanh::backward(std::span<const float> output_gradient) {
  multiply_elements(output_gradient, slope_.span(), input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
