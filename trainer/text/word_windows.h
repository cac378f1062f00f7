#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {

/// Adjacent windows of the words of a text, without overlap; the last may be shorter.
///
/// Format: "tokens" and "length" as LabelledTextDataset; no target.
class WordWindows final : public Dataset {
 public:
  /// `lines` make up the text and have a word.
  WordWindows(std::span<const std::string> lines, const Vocabulary& vocabulary,
              std::size_t max_length);

  std::size_t size() const override { return (words_.size() + window_ - 1) / window_; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  bool has_marks_;
  std::size_t window_;  // words
  SampleFormat format_;
  std::vector<std::int32_t> words_;
};

}  // namespace kolo::trainer
