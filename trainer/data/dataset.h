#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trainer/data/batch.h"
#include "trainer/text/text_files.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// Samples of one format by index.
///
/// Immutable. Threads: any.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of samples.
  virtual std::size_t size() const = 0;
  virtual const SampleFormat& format() const = 0;

  /// Writes sample `index` as it is in `epoch`: what changes it at random depends on both and on
  /// nothing else.
  /// Before: index < size(); `inputs` and `targets` follow `format()`.
  virtual void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
                    std::span<const TensorSlot> targets) const = 0;
};

class TextVocabulary;

/// The samples to learn from and those to test with. Both have one format.
struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  /// That of texts that are read whole; null where samples are none.
  std::shared_ptr<const TextVocabulary> vocabulary = nullptr;
  /// Turns the tokens of samples into text and back; null where they are not of a text.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  /// The vocabularies that samples were made with, which a model of them goes with.
  TextFiles text_files = {};
};

}  // namespace kolo::trainer
