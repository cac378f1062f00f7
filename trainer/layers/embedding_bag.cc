#include "trainer/layers/embedding_bag.h"

#include "comm/base/check.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {
namespace {

float share_of_a_word(std::span<const std::int32_t> words) {
  return 1.0f / static_cast<float>(words.size());
}

}  // namespace

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

}  // namespace kolo::trainer
