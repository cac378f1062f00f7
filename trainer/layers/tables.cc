#include "trainer/layers/tables.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

float share_of_a_word(std::span<const std::int32_t> words) {
  return 1.0f / static_cast<float>(words.size());
}

}  // namespace

Lookup::Lookup(ParameterSet& parameters, const std::string& name, const Options& options)
    : options_(options),
      table_(parameters.add_table(name, options.entries, options.width,
                                  {.deviation = options.deviation})),
      output_({options.count, options.width}) {
  if (options.padding) std::ranges::fill(table_.row(*options.padding), 0.0f);
}

std::span<const float> Lookup::forward(std::span<const std::int32_t> ids) {
  check(ids.size() <= options_.count,
        "a table is asked for at most as many rows as it was made for");
  ids_ = ids;
  auto into = output_.span().begin();
  for (const std::int32_t id : ids) into = std::ranges::copy(table_.row(id), into).out;
  return output_.span().first(ids.size() * options_.width);
}

void Lookup::backward(std::span<const float> output_gradient) {
  table_.begin_rows();
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] == options_.padding) continue;
    table_.add_to_row(ids_[i], output_gradient.subspan(i * options_.width, options_.width), 1.0f);
  }
  table_.contributed();
}

Embedding::Embedding(ParameterSet& parameters, const std::string& name, const Options& options)
    : sequences_(options.sequences),
      length_(options.length),
      width_(options.width),
      ranks_(options.ranks),
      first_(ranks_.outputs().begin(options.tokens)),
      token_(parameters.add(name + ".token", {options.tokens, width_},
                            {.deviation = options.deviation}, ranks_.outputs())),
      position_(options.has_positions ? &parameters.add(name + ".position", {length_, width_},
                                                        {.deviation = options.deviation})
                                      : nullptr),
      output_({sequences_ * options.chunk.value_or(length_), width_}) {}

std::span<const float> Embedding::forward(std::span<const std::int32_t> ids, std::size_t past) {
  const std::size_t length = ids.size() / sequences_;  // positions per sequence in this pass
  check(ids.size() == sequences_ * length && ids.size() * width_ <= output_.size() &&
            past + length <= length_,
        "an embedding takes as many ids as it has rows");
  ids_ = ids;
  const std::span<const float> tokens = std::as_const(token_).value();
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const auto y = output_.span().subspan(row * width_, width_);
    if (has(ids[row])) {
      std::ranges::copy(row_of(tokens, ids[row]), y.begin());
    } else {
      std::ranges::fill(y, 0.0f);  // another rank adds the row
    }
    if (position_ == nullptr || ranks_.index > 0) continue;
    const std::span<const float> positions = std::as_const(*position_).value();
    add(y, positions.subspan((past + row % length) * width_, width_), y);
  }
  const std::span<float> output = output_.span().first(ids.size() * width_);
  if (ranks_.deal()) ranks_.sum(token_.name(), output);
  return output;
}

void Embedding::backward(std::span<const float> output_gradient) {
  if (position_ != nullptr) {
    // With the shape [sequences, length · width], the sum over sequences is a sum of rows.
    sum_rows(output_gradient, position_->gradient(), position_->next_contribution());
    position_->contributed();
  }
  if (token_.next_contribution() == Into::kOverwrite) std::ranges::fill(token_.gradient(), 0.0f);
  for (std::size_t row = 0; row < ids_.size(); ++row) {
    if (!has(ids_[row])) continue;
    const std::span<float> into = row_of(token_.gradient(), ids_[row]);
    add(into, output_gradient.subspan(row * width_, width_), into);
  }
  token_.contributed();
}

EmbeddingBag::EmbeddingBag(ParameterSet& parameters, const std::string& name,
                           const Options& options)
    : options_(options),
      table_(parameters.add_table(name, options.words, options.width,
                                  {.deviation = options.deviation})),
      output_({options.texts, options.width}) {}

std::span<const float> EmbeddingBag::forward(std::span<const std::int32_t> ids,
                                             std::span<const std::int32_t> lengths) {
  check(lengths.size() == options_.texts && ids.size() == options_.texts * options_.length,
        "an embedding takes as many texts as it was made for");
  ids_ = ids;
  lengths_ = lengths;
  output_.fill(0.0f);
  for (std::size_t text = 0; text < options_.texts; ++text) {
    const std::span<const std::int32_t> words = words_of(text);
    const std::span<float> mean = output_.span().subspan(text * options_.width, options_.width);
    for (const std::int32_t word : words) add(table_.row(word), mean, mean);
    if (!words.empty()) scale(mean, share_of_a_word(words));
  }
  return output_.span();
}

void EmbeddingBag::backward(std::span<const float> output_gradient) {
  table_.begin_rows();
  for (std::size_t text = 0; text < options_.texts; ++text) {
    const std::span<const std::int32_t> words = words_of(text);
    for (const std::int32_t word : words) {
      table_.add_to_row(word, output_gradient.subspan(text * options_.width, options_.width),
                        share_of_a_word(words));
    }
  }
  table_.contributed();
}

std::span<const std::int32_t> EmbeddingBag::words_of(std::size_t text) const {
  return ids_.subspan(text * options_.length, static_cast<std::size_t>(lengths_[text]));
}

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
