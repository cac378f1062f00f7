#include "trainer/layers/average_pool.h"

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

std::span<const float> AveragePool::forward(std::span<const float> input, const Pass&) {
  const Shape& shape = input_gradient_.shape();
  const std::size_t channels = shape[2];
  const std::size_t image = shape[1] * channels;
  for (std::size_t i = 0; i < shape[0]; ++i) {
    sum_rows(input.subspan(i * image, image), output_.span().subspan(i * channels, channels));
  }
  scale(output_.span(), 1.0f / static_cast<float>(shape[1]));
  return output_.span();
}

std::span<const float> AveragePool::backward(std::span<const float> output_gradient) {
  const Shape& shape = input_gradient_.shape();
  const std::size_t channels = shape[2];
  const std::size_t image = shape[1] * channels;
  for (std::size_t i = 0; i < shape[0]; ++i) {
    repeat_row(output_gradient.subspan(i * channels, channels),
               input_gradient_.span().subspan(i * image, image));
  }
  scale(input_gradient_.span(), 1.0f / static_cast<float>(shape[1]));
  return input_gradient_.span();
}

}  // namespace kolo::trainer
