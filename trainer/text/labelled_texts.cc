#include "trainer/text/labelled_texts.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"
#include "trainer/data/data_error.h"
#include "trainer/text/numbered_names.h"

namespace kolo::trainer {
namespace {

std::vector<std::string> find_classes(const LabelledTexts& train, const TextFiles& stored) {
  if (const std::string* json = stored.find(kClassesFile)) {
    return from_numbered_json(*json, stored.path(kClassesFile));
  }
  std::vector<std::string> classes = train.column(train.label_column);
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  if (classes.size() < 2) {
    throw_data_error(train.table.file, "all texts have the label '" + classes.front() + "'");
  }
  return classes;
}

}  // namespace

std::vector<std::string> LabelledTexts::column(std::size_t index) const {
  std::vector<std::string> values;
  for (const std::vector<std::string>& row : table.rows) values.push_back(row.at(index));
  return values;
}

LabelledTextDataset::LabelledTextDataset(const LabelledTexts& texts,
                                         const TextVocabulary& vocabulary,
                                         const std::vector<std::string>& classes,
                                         std::size_t max_length)
    : format_(text_format(vocabulary, max_length)), padding_(vocabulary.padding()), begins_{0} {
  format_.targets = {{.name = "label", .dtype = DType::kInt32, .values = classes.size()}};
  const std::size_t marks = vocabulary.marks() ? 1 : 0;
  check(max_length > marks, "a text has room for a word");
  for (std::size_t row = 0; row < texts.table.rows.size(); ++row) {
    const std::vector<std::string>& values = texts.table.rows[row];
    const std::string& label = values.at(texts.label_column);
    const auto found = std::ranges::find(classes, label);
    if (found == classes.end()) {
      texts.table.fail(row, "label '" + label + "' does not occur in the training data");
    }
    labels_.push_back(static_cast<std::int32_t>(found - classes.begin()));
    std::vector<std::int32_t> tokens = vocabulary.encode(values.at(texts.text_column));
    tokens.resize(std::clamp(tokens.size(), std::size_t{1}, max_length - marks),
                  vocabulary.no_token());
    if (marks > 0) tokens_.push_back(vocabulary.marks()->text);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    begins_.push_back(tokens_.size());
  }
}

void LabelledTextDataset::copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
                               std::span<const TensorSlot> targets) const {
  check(index < size(), "a sample of a data set of texts is copied by its index");
  const std::span<std::int32_t> tokens = inputs[0].as<std::int32_t>();
  const auto text = std::span(tokens_).subspan(begins_[index], begins_[index + 1] - begins_[index]);
  std::fill(std::copy(text.begin(), text.end(), tokens.begin()), tokens.end(), padding_);
  inputs[1].as<std::int32_t>()[0] = static_cast<std::int32_t>(text.size());
  targets[0].as<std::int32_t>()[0] = labels_[index];
}

DataSplit make_labelled_texts(const LabelledTexts& train, const LabelledTexts& held_out,
                              std::shared_ptr<const TextVocabulary> vocabulary,
                              std::size_t max_length, const TextFiles& stored) {
  for (const LabelledTexts* part : {&train, &held_out}) {
    if (part->table.rows.empty()) throw_data_error(part->table.file, "there are no texts");
  }
  const std::vector<std::string> classes = find_classes(train, stored);
  const auto part = [&](const LabelledTexts& texts) {
    return std::make_unique<LabelledTextDataset>(texts, *vocabulary, classes, max_length);
  };
  TextFiles files = vocabulary->files();
  files.texts.emplace(kClassesFile, to_numbered_json(classes));
  return {.train = part(train),
          .held_out = part(held_out),
          .vocabulary = std::move(vocabulary),
          .text_files = std::move(files)};
}

}  // namespace kolo::trainer
