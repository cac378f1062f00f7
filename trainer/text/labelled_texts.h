#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/table/table.h"
#include "trainer/text/text_vocabulary.h"

namespace kolo::trainer {

/// Rows of a table, each a text with a label.
struct LabelledTexts {
  Table table;
  std::size_t text_column;
  std::size_t label_column;

  std::vector<std::string> column(std::size_t index) const;
};

/// Texts as words or other tokens by number, each with a class.
///
/// Format: "tokens", int32 [max_length] of the vocabulary: [CLS] where it has marks, the first
///         tokens of a text, then padding; "length", int32, the number of those before padding. A
///         text without any has the token that stands for none. "label", int32 below the classes.
class LabelledTextDataset final : public Dataset {
 public:
  /// `classes` are the labels by number. Errors: KoloError(kData) naming file and line of a label
  /// that is not among them.
  LabelledTextDataset(const LabelledTexts& texts, const TextVocabulary& vocabulary,
                      const std::vector<std::string>& classes, std::size_t max_length);

  std::size_t size() const override { return labels_.size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  SampleFormat format_;
  std::int32_t padding_;
  std::vector<std::int32_t> tokens_;  // of all texts, without padding
  std::vector<std::size_t> begins_;   // of each text, and the end of the last
  std::vector<std::int32_t> labels_;
};

/// Name of the file with the classes.
inline constexpr const char* kClassesFile = "classes.json";

/// Both parts with one list of classes: that of `stored`, or else that of the training part alone,
/// its labels in the order of their bytes. The result names it and the vocabulary as its files.
/// Errors: KoloError(kData) naming the file: no rows, a single label, as LabelledTextDataset and
///         `from_numbered_json`.
DataSplit make_labelled_texts(const LabelledTexts& train, const LabelledTexts& held_out,
                              std::shared_ptr<const TextVocabulary> vocabulary,
                              std::size_t max_length, const TextFiles& stored = {});

}  // namespace kolo::trainer
