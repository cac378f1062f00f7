#pragma once

#include <memory>

#include "trainer/text/text_vocabulary.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// The tokens of a tokenizer with their numbers, then padding, then the marks if it has them: texts
/// that are tokens already stay as they are.
class TokenVocabulary final : public TextVocabulary {
 public:
  struct Options {
    bool has_marks = false;
  };

  TokenVocabulary(std::shared_ptr<const Tokenizer> tokenizer, const Options& options);

  std::size_t size() const override { return tokenizer_->size() + (has_marks_ ? 3 : 1); }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    return tokenizer_->encode(text);
  }
  std::int32_t padding() const override { return tokens().end; }
  std::int32_t no_token() const override { return padding(); }
  std::optional<Marks> marks() const override;
  Range tokens() const override;
  TextFiles files() const override { return tokenizer_->files(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool has_marks_;
};

}  // namespace kolo::trainer
