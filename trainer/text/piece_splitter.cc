#include "trainer/text/byte_pair_encoding.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

// GPT-2's pattern. Its white space (\s) is spelt out, because PCRE2's \s includes U+180E, too.
constexpr char kPieces[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\t-\r\x{85}\p{Z}\p{L}\p{N}]+)"
    R"(|[\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}])|[\t-\r\x{85}\p{Z}]+)";

// Largest number of bytes that are matched at a time. Without PCRE2's just-in-time compiler, each
// match first searches the rest of its block for bytes that are not UTF-8.
constexpr std::size_t kPieceBlockBytes = 4096;

struct FreePieceMatch {
  void operator()(pcre2_match_data* match) const noexcept { pcre2_match_data_free(match); }
};

}  // namespace

void PieceSplitter::FreeCode::operator()(pcre2_real_code_8* code) const noexcept {
  pcre2_code_free(code);
}

PieceSplitter::PieceSplitter() {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pattern_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPieces), sizeof kPieces - 1,
                               PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr));
  ensure(pattern_ != nullptr, "PCRE2 does not take the pattern at " + std::to_string(offset));
  pcre2_jit_compile(pattern_.get(), PCRE2_JIT_COMPLETE);  // optional; it does not change the pieces
}

void PieceSplitter::split(std::string_view text,
                          const std::function<void(std::string_view piece)>& take) const {
  const std::unique_ptr<pcre2_match_data, FreePieceMatch> match(
      pcre2_match_data_create_from_pattern(pattern_.get(), nullptr));
  ensure(match != nullptr, "no memory for a match");
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match.get());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = next_cut(text, begin + kPieceBlockBytes);
    const std::string_view block = text.substr(begin, end - begin);
    for (std::size_t at = 0; at < block.size();) {
      const int result = pcre2_match(pattern_.get(), reinterpret_cast<PCRE2_SPTR>(block.data()),
                                     block.size(), at, 0, match.get(), nullptr);
      const bool is_found = result > 0;
      if (!is_found && result != PCRE2_ERROR_NOMATCH) {
        ensure(false, "PCRE2 fails with " + std::to_string(result));
      }
      const std::size_t from = is_found ? found[0] : block.size();
      const std::size_t to = is_found ? found[1] : block.size();
      if (from > at) take(block.substr(at, from - at));  // bytes that are not UTF-8
      if (to > from) take(block.substr(from, to - from));
      at = to;
    }
    begin = end;
  }
}

// A space or line feed after a printable ASCII character begins a new piece, and pieces on one side
// of it do not depend on the text on the other side.
std::size_t next_cut(std::string_view text, std::size_t from) {
  for (std::size_t i = std::max<std::size_t>(from, 1); i < text.size(); ++i) {
    const bool is_after_character = text[i - 1] > ' ' && text[i - 1] <= '~';
    if (is_after_character && (text[i] == ' ' || text[i] == '\n')) return i;
  }
  return text.size();
}

}  // namespace kolo::trainer
