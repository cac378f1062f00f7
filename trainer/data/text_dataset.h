#pragma once

#include <memory>

#include "trainer/data/corpus.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Adjacent windows of `context` bytes without overlap; the target of a byte is the next byte of
/// the text. Bytes at the end that fill no window are left out.
///
/// Format: "tokens" and "next", int32 [context] below 256.
class TextDataset final : public Dataset {
 public:
  /// A view of bytes [begin, end) of `corpus`. Ownership is shared because the training and the
  /// held-out part view the same mapping.
  TextDataset(std::shared_ptr<const Corpus> corpus, std::size_t begin, std::size_t end,
              std::size_t context);

  std::size_t size() const override { return (text_.size() - 1) / context_; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  std::shared_ptr<const Corpus> corpus_;
  std::span<const std::uint8_t> text_;
  std::size_t context_;
  SampleFormat format_;
};

}  // namespace kolo::trainer
