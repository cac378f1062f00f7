#include "trainer/text/masked_texts.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

/// Number of the first random stream, above those of initial values, permutations and dropout.
constexpr std::uint64_t kFirstStream = std::uint64_t{1} << 49;
constexpr std::size_t kPercentChosen = 15;
constexpr float kShareMasked = 0.8f;
constexpr float kShareRandom = 0.1f;

}  // namespace

std::size_t MaskedTexts::chosen_of(std::size_t words) {
  return std::max<std::size_t>((words * kPercentChosen + 50) / 100, 1);
}

MaskedTexts::MaskedTexts(std::unique_ptr<Dataset> texts, const TextVocabulary& vocabulary,
                         std::uint64_t seed)
    : texts_(std::move(texts)),
      mask_(vocabulary.marks().value().hidden),
      words_(vocabulary.tokens()),
      seed_(seed) {
  const std::vector<Field>& inputs = texts_->format().inputs;
  check(inputs.size() == 2 && inputs[0].elements() > 1 && words_.size() > 0,
        "texts whose words are hidden have marks and words");
  const std::size_t most_chosen = chosen_of(inputs[0].elements() - 1);
  format_.inputs = inputs;
  format_.inputs.push_back({.name = "chosen",
                            .dtype = DType::kInt32,
                            .shape = {most_chosen},
                            .values = inputs[0].elements()});
  format_.targets = {{.name = "hidden",
                      .dtype = DType::kInt32,
                      .shape = {most_chosen},
                      .values = inputs[0].values}};
  std::vector<std::int32_t> tokens(inputs[0].elements()), length(1);
  const TensorSlot memory[] = {tokens, length};
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    copy_text(i, 0, memory);
    chosen += chosen_of(static_cast<std::size_t>(length[0]) - 1);
  }
  mean_chosen_ = static_cast<double>(chosen) / static_cast<double>(size());
}

void MaskedTexts::copy_text(std::size_t index, std::uint64_t epoch,
                            std::span<const TensorSlot> inputs) const {
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorSlot> left_out;
  for (const Field& field : texts_->format().targets) {
    left_out.emplace_back(field.dtype, memory.emplace_back(field.bytes()));
  }
  texts_->copy(index, epoch, inputs.first(2), left_out);
}

void MaskedTexts::copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
                       std::span<const TensorSlot> targets) const {
  copy_text(index, epoch, inputs);
  const std::span<std::int32_t> tokens = inputs[0].as<std::int32_t>();
  const auto words = static_cast<std::size_t>(inputs[1].as<std::int32_t>()[0]) - 1;
  const std::size_t count = chosen_of(words);
  Random random(Random(seed_, kFirstStream + epoch).next(), index);

  // Draws the first `count` elements of a random permutation of 1 … words.
  std::vector<std::int32_t> places(words);
  std::iota(places.begin(), places.end(), 1);
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(places[i], places[i + random.below(words - i)]);
  }
  places.resize(count);
  std::ranges::sort(places);

  const std::span<std::int32_t> chosen = inputs[2].as<std::int32_t>();
  const std::span<std::int32_t> hidden = targets[0].as<std::int32_t>();
  std::fill(std::ranges::copy(places, chosen.begin()).out, chosen.end(), 0);
  std::ranges::fill(hidden, kNoTarget);
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t& token = tokens[static_cast<std::size_t>(places[i])];
    hidden[i] = token;
    const float share = random.uniform();
    if (share < kShareMasked) {
      token = mask_;
    } else if (share < kShareMasked + kShareRandom) {
      token = words_.first + static_cast<std::int32_t>(random.below(words_.size()));
    }
  }
}

}  // namespace kolo::trainer
