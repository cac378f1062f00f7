#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trainer/data/dataset.h"
#include "trainer/text/text_vocabulary.h"
#include "trainer/tokens/token_dataset.h"

namespace kolo::trainer {

/// Windows of tokens as texts: each begins with the mark of a text.
///
/// Format: "tokens" and "length" as LabelledTextDataset, all of one length, which is that of the
///         windows and one more; no target.
class MarkedWindows final : public Dataset {
 public:
  /// Before: `vocabulary` has marks, and its tokens are those of `windows`.
  MarkedWindows(std::unique_ptr<TokenDataset> windows, const TextVocabulary& vocabulary);

  std::size_t size() const override { return windows_->size(); }
  const SampleFormat& format() const override { return format_; }
  /// Errors: as TokenDataset.
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  std::unique_ptr<TokenDataset> windows_;
  std::int32_t mark_;
  SampleFormat format_;
};

}  // namespace kolo::trainer
