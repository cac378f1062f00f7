#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

struct pcre2_real_code_8;

namespace kolo::trainer {

/// Cuts texts into the pieces that GPT-2 cuts them into before it merges bytes: a word with the
/// space before it, digits, other characters, white space. No token reaches over two pieces.
///
/// Letters, numbers and white space are those of Unicode. Bytes that are not UTF-8 are pieces of
/// their own. The pieces, one after the other, are the text.
///
/// Threads: any. Source: https://github.com/openai/gpt-2, src/encoder.py.
class PieceSplitter {
 public:
  PieceSplitter();

  void split(std::string_view text, const std::function<void(std::string_view piece)>& take) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const noexcept;
  };

  std::unique_ptr<pcre2_real_code_8, FreeCode> pattern_;
};

/// The first place at or after `from` where a text can be cut so that its two parts have the pieces
/// that the whole has; the end of the text if there is none.
std::size_t next_cut(std::string_view text, std::size_t from);

}  // namespace kolo::trainer
