#pragma once

#include <memory>
#include <span>
#include <string>

#include "trainer/text/vocabulary.h"

namespace kolo::trainer {

struct Config;

/// The vocabulary of config.words, or else that of `texts`, the training data.
/// Errors: KoloError(kData) as `Vocabulary`, and naming a file that has marks where config has
///         none or the reverse.
std::shared_ptr<const Vocabulary> load_vocabulary(const Config& config,
                                                  std::span<const std::string> texts);

}  // namespace kolo::trainer
