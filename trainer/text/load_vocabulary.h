#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/text/text_files.h"
#include "trainer/text/text_vocabulary.h"

namespace kolo::trainer {

struct Config;

/// The vocabulary of words or of byte pairs whose files are among config.text_files, or else that
/// of the words of `texts`, the training data.
/// Errors: KoloError(kData) as `from_numbered_json`, `Vocabulary` and `make_tokenizer`, and naming
///         a file that has marks where config has none or the reverse.
std::shared_ptr<const TextVocabulary> load_vocabulary(const Config& config,
                                                      std::span<const std::string> texts);

/// The options of data that becomes words; see `DatasetEntry::reads`.
std::vector<std::string> word_options();

/// Whether one of the files is that of a vocabulary.
bool has_vocabulary(const TextFiles& files);

}  // namespace kolo::trainer
