#pragma once

#include <memory>

#include "trainer/data/corpus.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Adjacent windows of `context` bytes without overlap; the target of a byte is the next byte of
/// the text. Bytes at the end that fill no window are left out.
class TextDataset final : public Dataset {
 public:
  /// A view of bytes [begin, end) of `corpus`. Ownership is shared because the training and the
  /// held-out part view the same mapping.
  TextDataset(std::shared_ptr<const Corpus> corpus, std::size_t begin, std::size_t end,
              std::size_t context);

  std::size_t size() const override { return (text_.size() - 1) / context_; }
  std::size_t input_bytes() const override { return context_; }
  std::size_t target_bytes() const override { return context_; }
  void copy(std::size_t index, std::span<std::uint8_t> input,
            std::span<std::uint8_t> target) const override;

 private:
  std::shared_ptr<const Corpus> corpus_;
  std::span<const std::uint8_t> text_;
  std::size_t context_;
};

}  // namespace kolo::trainer
