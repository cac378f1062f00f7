#include "trainer/text/byte_tokenizer.h"

#include <array>

namespace kolo::trainer {
namespace {

constexpr std::array<char, ByteTokenizer::kSize> kAllBytes = [] {
  std::array<char, ByteTokenizer::kSize> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

}  // namespace

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string_view ByteTokenizer::bytes_of(std::int32_t token) const {
  return {&kAllBytes.at(static_cast<std::size_t>(token)), 1};
}

TextFiles ByteTokenizer::files() const {
  return {.texts = {{kFile, "The tokens of this model are the 256 values of a byte.\n"}},
          .origin = {}};
}

}  // namespace kolo::trainer
