#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/text/text_vocabulary.h"

namespace kolo::trainer {

/// Adjacent windows of the tokens of a text, without overlap; the last may be shorter.
///
/// Format: "tokens" and "length" as LabelledTextDataset; no target.
class WordWindows final : public Dataset {
 public:
  /// `lines` make up the text and have a token.
  WordWindows(std::span<const std::string> lines, const TextVocabulary& vocabulary,
              std::size_t max_length);

  std::size_t size() const override { return (tokens_.size() + window_ - 1) / window_; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  std::optional<std::int32_t> mark_;
  std::int32_t padding_;
  std::size_t window_;  // tokens without the mark
  SampleFormat format_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace kolo::trainer
