#pragma once

#include <cstddef>

#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// The bytes of a text are its tokens.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::size_t kSize = 256;
  /// The file that says so; it holds a sentence for people.
  static constexpr const char* kFile = "bytes.txt";

  std::size_t size() const override { return kSize; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t token) const override;
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  TextFiles files() const override;
};

}  // namespace kolo::trainer
