#include "trainer/text/load_vocabulary.h"

#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/text/numbered_names.h"

namespace kolo::trainer {
namespace {

std::shared_ptr<const Vocabulary> read_words(const std::string& json,
                                             const std::filesystem::path& file) {
  std::vector<std::string> words = from_numbered_json(json, file);
  if (words.size() <= Vocabulary::kUnknown) {
    throw_data_error(file, "it lacks entries for padding and unknown words");
  }
  return std::make_shared<const Vocabulary>(std::move(words));
}

}  // namespace

std::shared_ptr<const Vocabulary> load_vocabulary(const Config& config,
                                                  std::span<const std::string> texts) {
  const std::string* stored = config.text_files.find(kWordsFile);
  if (config.words.empty() && stored == nullptr) {
    return std::make_shared<const Vocabulary>(
        texts, Vocabulary::Options{.most = config.vocabulary.value_or(SIZE_MAX),
                                   .min_count = config.min_count,
                                   .has_marks = config.text_marks});
  }
  const bool has_file = !config.words.empty();
  const std::filesystem::path file = has_file ? config.words : config.text_files.path(kWordsFile);
  auto vocabulary = has_file ? std::make_shared<const Vocabulary>(file) : read_words(*stored, file);
  if (vocabulary->has_marks() != config.text_marks) {
    throw_data_error(file, config.text_marks ? "it has no [CLS] and [MASK]: --text-marks is on"
                                             : "it has [CLS] and [MASK]: --text-marks is off");
  }
  return vocabulary;
}

TextFiles words_file(const Vocabulary& vocabulary) {
  return {.texts = {{kWordsFile, to_numbered_json(vocabulary.words())}}, .origin = {}};
}

}  // namespace kolo::trainer
