#include "trainer/layers/sequence_mean.h"

#include <algorithm>

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

std::span<const float> SequenceMean::forward(std::span<const float> input, const Pass&) {
  output_.fill(0.0f);
  std::size_t row = 0;
  for (const auto [sequence, step] : sequences_.places()) {
    add_scaled(input.subspan(row++ * width_, width_), share_of_a_row(sequence),
               output_.span().subspan(sequence * width_, width_));
  }
  return output_.span();
}

std::span<const float> SequenceMean::backward(std::span<const float> output_gradient) {
  const std::span<float> gradient = input_gradient_.span().first(sequences_.rows() * width_);
  std::ranges::fill(gradient, 0.0f);
  std::size_t row = 0;
  for (const auto [sequence, step] : sequences_.places()) {
    add_scaled(output_gradient.subspan(sequence * width_, width_), share_of_a_row(sequence),
               gradient.subspan(row++ * width_, width_));
  }
  return gradient;
}

}  // namespace kolo::trainer
