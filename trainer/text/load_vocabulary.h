#pragma once

#include <memory>
#include <span>
#include <string>

#include "trainer/text/text_files.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {

struct Config;

/// Name of the file with the entries of a vocabulary of words; see `from_numbered_json`.
inline constexpr const char* kWordsFile = "words.json";

/// The vocabulary of kWordsFile among config.text_files, or else that of `texts`, the training
/// data.
/// Errors: KoloError(kData) as `from_numbered_json` and `Vocabulary`, and naming a file that has
///         marks where config has none or the reverse.
std::shared_ptr<const Vocabulary> load_vocabulary(const Config& config,
                                                  std::span<const std::string> texts);

/// Whether one of the files is that of a vocabulary, of words or of other tokens.
bool has_vocabulary(const TextFiles& files);

/// The vocabulary as its file.
TextFiles words_file(const Vocabulary& vocabulary);

}  // namespace kolo::trainer
