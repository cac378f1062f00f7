#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trainer/data/dataset.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {

/// A data set of texts in which some words (or other tokens) are hidden, for a model to predict.
///
/// 15 % of a text's words are chosen, at least one. A chosen word becomes [MASK] with probability
/// 0.8, becomes a random word with probability 0.1, and stays unchanged with probability 0.1. The
/// choice depends only on seed, epoch and index, not on the number of ranks.
///
/// Format: the inputs "tokens" and "length" of the texts; the input "chosen", int32 [most_chosen],
///         with the positions of chosen words in ascending order, then zeros; the target "hidden",
///         int32 [most_chosen], with the original words at these positions, then kNoTarget.
/// Source: Devlin et al., "BERT", NAACL 2019, section 3.1.
class MaskedTexts final : public Dataset {
 public:
  /// `texts` have the inputs "tokens", numbered by `vocabulary`, and "length"; their targets are
  /// ignored. `vocabulary` has marks.
  MaskedTexts(std::unique_ptr<Dataset> texts, const TextVocabulary& vocabulary, std::uint64_t seed);

  /// The number of chosen words in a text of `words` words, at least 1.
  static std::size_t chosen_of(std::size_t words);

  std::size_t size() const override { return texts_->size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

  /// The average number of chosen words per text.
  double mean_chosen() const { return mean_chosen_; }

 private:
  /// Copies the inputs of a text without hiding words.
  void copy_text(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs) const;

  std::unique_ptr<Dataset> texts_;
  std::int32_t mask_;
  TextVocabulary::Range words_;  // words from which random replacements are drawn
  std::uint64_t seed_;
  SampleFormat format_;
  double mean_chosen_ = 0.0;
};

}  // namespace kolo::trainer
