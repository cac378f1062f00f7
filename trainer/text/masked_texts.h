#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trainer/data/dataset.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {

/// Texts of which some words, or other tokens, are hidden, to be told from the others.
///
/// 15 % of a text's words, and at least one, are chosen. A chosen word becomes [MASK] with
/// probability 0.8, a random word with 0.1, and else stays. All of it depends on seed, epoch and
/// index alone, so it is the same whatever the number of ranks.
///
/// Format: "tokens" and "length" as the texts have them; "chosen", int32 [most_chosen], the places
///         of chosen words in rising order, then zeros; target "hidden", int32 [most_chosen], the
///         words that stood there, then kNoTarget.
/// Source: Devlin et al., "BERT", NAACL 2019, section 3.1.
class MaskedTexts final : public Dataset {
 public:
  /// `texts` have "tokens" of `vocabulary`, which has marks, and "length"; their targets are left
  /// out.
  MaskedTexts(std::unique_ptr<Dataset> texts, const TextVocabulary& vocabulary, std::uint64_t seed);

  /// Number of chosen words among `words`, at least 1.
  static std::size_t chosen_of(std::size_t words);

  std::size_t size() const override { return texts_->size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

  /// Chosen words of a text, on average.
  double mean_chosen() const { return mean_chosen_; }

 private:
  /// Writes a text as it is.
  void copy_text(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs) const;

  std::unique_ptr<Dataset> texts_;
  std::int32_t mask_;
  TextVocabulary::Range words_;  // that stand in for chosen ones
  std::uint64_t seed_;
  SampleFormat format_;
  double mean_chosen_ = 0.0;
};

}  // namespace kolo::trainer
