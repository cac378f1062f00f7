#include "trainer/layers/row_selection.h"

#include <algorithm>

#include "comm/base/check.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

RowSelection::RowSelection(const Options& options)
    : options_(options),
      output_({options.sequences * options.taken, options.width}),
      input_gradient_({options.sequences * options.length, options.width}) {}

void RowSelection::set_positions(std::span<const std::int32_t> positions) {
  check(positions.size() == options_.sequences * options_.taken,
        "a selection takes as many positions as it has rows");
  positions_ = positions;
}

std::size_t RowSelection::source_of(std::size_t row) const {
  const std::size_t position = positions_.empty() ? 0 : static_cast<std::size_t>(positions_[row]);
  return row / options_.taken * options_.length + position;
}

std::span<const float> RowSelection::forward(std::span<const float> input, const Pass&) {
  const std::size_t width = options_.width;
  auto into = output_.span().begin();
  for (std::size_t row = 0; row < output_.size() / width; ++row) {
    into = std::ranges::copy(input.subspan(source_of(row) * width, width), into).out;
  }
  return output_.span();
}

std::span<const float> RowSelection::backward(std::span<const float> output_gradient) {
  const std::size_t width = options_.width;
  input_gradient_.fill(0.0f);
  for (std::size_t row = 0; row < output_.size() / width; ++row) {
    const auto into = input_gradient_.span().subspan(source_of(row) * width, width);
    add(into, output_gradient.subspan(row * width, width), into);
  }
  return input_gradient_.span();
}

}  // namespace kolo::trainer
