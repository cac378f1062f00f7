#pragma once

#include <memory>

#include "trainer/data/corpus.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Windows of `context` bytes that follow each other without overlap; the target of a byte is the
/// next byte of the text. Bytes that fill no window at the end are left out.
class TextDataset final : public Dataset {
 public:
  /// A view of bytes [begin, end) of `corpus`. Shared ownership: the training and the held-out part
  /// look into the same mapping.
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
