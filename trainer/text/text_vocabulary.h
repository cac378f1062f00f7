#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/text/text_files.h"

namespace kolo::trainer {

/// Numbers for the tokens of texts that a model reads whole, which are words or byte pairs, and for
/// entries that are no tokens of a text.
///
/// Marks: a text begins with [CLS], which stands for all of it, and [MASK] stands where a token is
///        hidden.
/// Immutable. Threads: any.
class TextVocabulary {
 public:
  struct Marks {
    std::int32_t text;    ///< [CLS]
    std::int32_t hidden;  ///< [MASK]
  };
  /// Entries from `first` to before `end`.
  struct Range {
    std::int32_t first;
    std::int32_t end;
    std::size_t size() const { return static_cast<std::size_t>(end - first); }
  };

  virtual ~TextVocabulary() = default;

  /// Number of entries, with those that are no tokens of a text.
  virtual std::size_t size() const = 0;
  /// The tokens of a text, without marks.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Fills up a text.
  virtual std::int32_t padding() const = 0;
  /// Stands for a text that has no tokens.
  virtual std::int32_t no_token() const = 0;
  virtual std::optional<Marks> marks() const = 0;
  /// The entries that are tokens of texts and can be told apart.
  virtual Range tokens() const = 0;
  /// What has to be kept to make an equal one; see `load_vocabulary`.
  virtual TextFiles files() const = 0;
};

/// Inputs of whole texts: "tokens", int32 [max_length] of the vocabulary, and "length", int32, the
/// number of those before padding.
SampleFormat text_format(const TextVocabulary& vocabulary, std::size_t max_length);

}  // namespace kolo::trainer
