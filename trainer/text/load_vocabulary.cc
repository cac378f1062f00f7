#include "trainer/text/load_vocabulary.h"

#include <utility>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/text/make_tokenizer.h"
#include "trainer/text/numbered_names.h"
#include "trainer/text/token_vocabulary.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
std::shared_ptr<const TextVocabulary> load_vocabulary(const Config& config,
                                                      std::span<const std::string> texts) {
  const TextFiles& files = config.text_files;
  if (const std::string* stored = files.find(Vocabulary::kFile)) {
    const std::filesystem::path file = files.path(Vocabulary::kFile);
    auto words = std::make_shared<const Vocabulary>(
        Vocabulary::from_entries(from_numbered_json(*stored, file), file));
    if (words->marks().has_value() == config.text_marks) return words;
    throw_data_error(file, config.text_marks ? "it has no [CLS] and [MASK]: --text-marks is on"
                                             : "it has [CLS] and [MASK]: --text-marks is off");
  }
  if (auto tokenizer = make_tokenizer(files)) {
    return std::make_shared<const TokenVocabulary>(
        std::move(tokenizer), TokenVocabulary::Options{.has_marks = config.text_marks});
  }
  return std::make_shared<const Vocabulary>(
      texts, Vocabulary::Options{.most = config.vocabulary.value_or(SIZE_MAX),
                                 .min_count = config.min_count,
                                 .has_marks = config.text_marks});
}

std::vector<std::string> word_options() {
  return {"--max-length", "--vocabulary", "--min-count", "--text-marks"};
}

bool has_vocabulary(const TextFiles& files) {
  return files.find(Vocabulary::kFile) != nullptr || make_tokenizer(files) != nullptr;
}

}  // namespace kolo::trainer
