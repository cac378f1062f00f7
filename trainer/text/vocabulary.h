#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kolo::trainer {

/// The words of a text in lower case, and each of its other characters but white space.
///
/// A word is a run of letters, digits, underscores, apostrophes and bytes above 127, which keeps
/// UTF-8 together; only ASCII letters become lower case.
std::vector<std::string> split_words(std::string_view text);

/// Numbers for words: 0 is padding, 1 any word that is not here, then the words, the most frequent
/// first, words of one count in the order of their bytes.
///
/// Immutable. Threads: any.
class Vocabulary {
 public:
  static constexpr std::int32_t kPadding = 0;
  static constexpr std::int32_t kUnknown = 1;

  struct Options {
    std::size_t most = SIZE_MAX;  ///< Entries, with padding and unknown; at least 2.
    std::size_t min_count = 1;    ///< Rarer words stay unknown.
  };

  /// Counts the words of `texts`.
  Vocabulary(std::span<const std::string> texts, const Options& options);

  /// Number of entries, with padding and unknown.
  std::size_t size() const { return words_.size(); }
  std::int32_t id(std::string_view word) const;
  /// Before: id is below size().
  const std::string& word(std::int32_t id) const { return words_[static_cast<std::size_t>(id)]; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  std::vector<std::string> words_;  // by id; those of padding and unknown are no words
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace kolo::trainer
