#include "trainer/layers/embedding.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

Embedding::Embedding(ParameterSet& parameters, const std::string& name, const Options& options)
    : sequences_(options.sequences),
      length_(options.length),
      width_(options.width),
      token_(parameters.add(name + ".token", {options.tokens, width_},
                            {.deviation = options.deviation})),
      position_(options.has_positions ? &parameters.add(name + ".position", {length_, width_},
                                                        {.deviation = options.deviation})
                                      : nullptr),
      output_({sequences_ * options.chunk.value_or(length_), width_}) {}

std::span<const float> Embedding::forward(std::span<const std::int32_t> ids, std::size_t past) {
  const std::size_t length = ids.size() / sequences_;  // in this pass
  check(ids.size() == sequences_ * length && ids.size() * width_ <= output_.size() &&
            past + length <= length_,
        "an embedding takes as many ids as it has rows");
  ids_ = ids;
  const std::span<const float> tokens = std::as_const(token_).value();
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const auto token = row_of(tokens, ids[row]);
    const auto y = output_.span().subspan(row * width_, width_);
    if (position_ != nullptr) {
      const std::span<const float> positions = std::as_const(*position_).value();
      add(token, positions.subspan((past + row % length) * width_, width_), y);
    } else {
      std::ranges::copy(token, y.begin());
    }
  }
  return output_.span().first(ids.size() * width_);
}

void Embedding::backward(std::span<const float> output_gradient) {
  if (position_ != nullptr) {
    // [sequences, length · width]: the sum over sequences is a sum of rows.
    sum_rows(output_gradient, position_->gradient(), position_->next_contribution());
    position_->contributed();
  }
  if (token_.next_contribution() == Into::kOverwrite) std::ranges::fill(token_.gradient(), 0.0f);
  for (std::size_t row = 0; row < ids_.size(); ++row) {
    const std::span<float> into = row_of(token_.gradient(), ids_[row]);
    add(into, output_gradient.subspan(row * width_, width_), into);
  }
  token_.contributed();
}

}  // namespace kolo::trainer
