#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/text_files.h"

namespace kolo::trainer {

/// Turns texts into tokens, which are integers below `size()`, and back. Each token stands for
/// bytes, so a text is what its tokens stand for, one after the other.
///
/// Immutable. Threads: any.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Number of entries of the vocabulary.
  virtual std::size_t size() const = 0;

  /// Any bytes are a text. `decode` gives them back.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The bytes that a token stands for; valid as long as this. Before: `token` is in [0, size()).
  virtual std::string_view bytes_of(std::int32_t token) const = 0;

  /// The token that stands between two texts. No text has it.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// What has to be kept to make an equal one; see `make_tokenizer`.
  virtual TextFiles files() const = 0;

  /// Before: every token is in [0, size()).
  std::string decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    for (const std::int32_t token : tokens) text += bytes_of(token);
    return text;
  }
};

}  // namespace kolo::trainer
