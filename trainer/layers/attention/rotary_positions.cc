#include "trainer/layers/attention/rotary_positions.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"
#include "trainer/kernels/rotary.h"

namespace kolo::trainer {
namespace {

constexpr double kBase = 10000.0;

}  // namespace

RotaryPositions::RotaryPositions(const SelfAttention::Options& options)
    : options_(options),
      cosines_({options.length, options.width / options.heads / 2}),
      sines_(cosines_.shape()),
      opposite_sines_(cosines_.shape()),
      output_({options.rows(), 3 * options.width}),
      input_gradient_({options.chunk ? 0 : options.rows(), 3 * options.width}) {
  check(options.width % (2 * options.heads) == 0, "rotary positions need heads of an even width");
  const std::size_t pairs = cosines_.shape()[1];
  for (std::size_t i = 0; i < cosines_.size(); ++i) {
    const auto position = static_cast<double>(i / pairs);
    const double share = static_cast<double>(i % pairs) / static_cast<double>(pairs);
    const double angle = position / std::pow(kBase, share);
    cosines_.span()[i] = static_cast<float>(std::cos(angle));
    sines_.span()[i] = static_cast<float>(std::sin(angle));
    opposite_sines_.span()[i] = -sines_.span()[i];
  }
}

std::span<const float> RotaryPositions::forward(std::span<const float> input, const Pass& pass) {
  const std::span<float> output = output_.span().first(input.size());
  rotate(input, pass.past, sines_, output);
  return output;
}

std::span<const float> RotaryPositions::backward(std::span<const float> output_gradient) {
  rotate(output_gradient, 0, opposite_sines_, input_gradient_.span());
  return input_gradient_.span();
}

void RotaryPositions::rotate(std::span<const float> from, std::size_t past, const Tensor& sines,
                             std::span<float> to) const {
  const std::size_t width = options_.width;
  const std::size_t pairs = cosines_.shape()[1];
  const std::size_t rows = from.size() / (3 * width);
  const std::size_t length = rows / options_.sequences;  // in this pass
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t angles = (past + row % length) * pairs;
    const auto x = from.subspan(row * 3 * width, 3 * width);
    const auto y = to.subspan(row * 3 * width, 3 * width);
    rotate_pairs(x.first(2 * width), cosines_.span().subspan(angles, pairs),
                 sines.span().subspan(angles, pairs), y.first(2 * width));
    std::ranges::copy(x.last(width), y.last(width).begin());
  }
}

}  // namespace kolo::trainer
