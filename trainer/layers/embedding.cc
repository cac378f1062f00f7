#include "trainer/layers/embedding.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

Embedding::Embedding(ParameterSet& parameters, const std::string& name, const Options& options)
    : length_(options.length),
      width_(options.width),
      token_(parameters.add(name + ".token", {options.tokens, width_},
                            {.deviation = options.deviation})),
      position_(
          parameters.add(name + ".position", {length_, width_}, {.deviation = options.deviation})),
      output_({options.sequences * length_, width_}) {}

std::span<const float> Embedding::forward(std::span<const std::int32_t> ids) {
  check(ids.size() * width_ == output_.size(), "an embedding takes as many ids as it has rows");
  ids_ = ids;
  const std::span<const float> tokens = std::as_const(token_).value();
  const std::span<const float> positions = std::as_const(position_).value();
  for (std::size_t row = 0; row < ids.size(); ++row) {
    add(row_of(tokens, ids[row]), positions.subspan(row % length_ * width_, width_),
        output_.span().subspan(row * width_, width_));
  }
  return output_.span();
}

void Embedding::backward(std::span<const float> output_gradient) {
  // [sequences, length · width]: the sum over sequences is a sum of rows.
  sum_rows(output_gradient, position_.gradient(), position_.next_contribution());
  position_.contributed();
  if (token_.next_contribution() == Into::kOverwrite) std::ranges::fill(token_.gradient(), 0.0f);
  for (std::size_t row = 0; row < ids_.size(); ++row) {
    const std::span<float> into = row_of(token_.gradient(), ids_[row]);
    add(into, output_gradient.subspan(row * width_, width_), into);
  }
  token_.contributed();
}

}  // namespace kolo::trainer
