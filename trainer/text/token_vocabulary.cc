#include "trainer/text/token_vocabulary.h"

#include <utility>

namespace kolo::trainer {

TokenVocabulary::TokenVocabulary(std::shared_ptr<const Tokenizer> tokenizer, const Options& options)
    : tokenizer_(std::move(tokenizer)), has_marks_(options.has_marks) {}

std::optional<TextVocabulary::Marks> TokenVocabulary::marks() const {
  if (!has_marks_) return std::nullopt;
  return Marks{.text = padding() + 1, .hidden = padding() + 2};
}

TextVocabulary::Range TokenVocabulary::tokens() const {
  return {.first = 0, .end = static_cast<std::int32_t>(tokenizer_->size())};
}

}  // namespace kolo::trainer
