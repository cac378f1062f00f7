#include "trainer/text/load_vocabulary.h"

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/text/make_tokenizer.h"
#include "trainer/text/numbered_names.h"

namespace kolo::trainer {
std::shared_ptr<const Vocabulary> load_vocabulary(const Config& config,
                                                  std::span<const std::string> texts) {
  const std::string* stored = config.text_files.find(kWordsFile);
  if (stored == nullptr) {
    return std::make_shared<const Vocabulary>(
        texts, Vocabulary::Options{.most = config.vocabulary.value_or(SIZE_MAX),
                                   .min_count = config.min_count,
                                   .has_marks = config.text_marks});
  }
  const std::filesystem::path file = config.text_files.path(kWordsFile);
  auto vocabulary = std::make_shared<const Vocabulary>(
      Vocabulary::from_entries(from_numbered_json(*stored, file), file));
  if (vocabulary->has_marks() != config.text_marks) {
    throw_data_error(file, config.text_marks ? "it has no [CLS] and [MASK]: --text-marks is on"
                                             : "it has [CLS] and [MASK]: --text-marks is off");
  }
  return vocabulary;
}

bool has_vocabulary(const TextFiles& files) {
  return files.find(kWordsFile) != nullptr || make_tokenizer(files) != nullptr;
}

TextFiles words_file(const Vocabulary& vocabulary) {
  return {.texts = {{kWordsFile, to_numbered_json(vocabulary.words())}}, .origin = {}};
}

}  // namespace kolo::trainer
