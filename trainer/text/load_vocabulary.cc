#include "trainer/text/load_vocabulary.h"

#include "trainer/config.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {

std::shared_ptr<const Vocabulary> load_vocabulary(const Config& config,
                                                  std::span<const std::string> texts) {
  if (config.words.empty()) {
    return std::make_shared<const Vocabulary>(
        texts, Vocabulary::Options{.most = config.vocabulary.value_or(SIZE_MAX),
                                   .min_count = config.min_count,
                                   .has_marks = config.text_marks});
  }
  auto vocabulary = std::make_shared<const Vocabulary>(config.words);
  if (vocabulary->has_marks() != config.text_marks) {
    throw_data_error(config.words, config.text_marks
                                       ? "it has no [CLS] and [MASK]: --text-marks is on"
                                       : "it has [CLS] and [MASK]: --text-marks is off");
  }
  return vocabulary;
}

}  // namespace kolo::trainer
