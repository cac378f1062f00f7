#pragma once

#include <memory>

#include "trainer/text/text_files.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// The tokenizer whose files are among `files`; null if there is none.
/// Errors: KoloError(kData) as `BytePairEncoding::from_files`.
std::shared_ptr<const Tokenizer> make_tokenizer(const TextFiles& files);

}  // namespace kolo::trainer
