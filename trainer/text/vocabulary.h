#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/text/text_vocabulary.h"

namespace kolo::trainer {

/// The words of a text in lower case, and each of its other characters but white space.
///
/// A word is a run of letters, digits, underscores, apostrophes and bytes above 127, which keeps
/// UTF-8 together; only ASCII letters become lower case.
std::vector<std::string> split_words(std::string_view text);

/// Numbers for words: 0 is padding, 1 any word that is not here, then the marks if it has them,
/// then the words, the most frequent first, words of one count in the order of their bytes.
class Vocabulary final : public TextVocabulary {
 public:
  /// The file with the entries; see `from_numbered_json`.
  static constexpr const char* kFile = "words.json";

  static constexpr std::int32_t kPadding = 0;
  static constexpr std::int32_t kUnknown = 1;
  static constexpr std::int32_t kClass = 2;  ///< [CLS], where there are marks.
  static constexpr std::int32_t kMask = 3;   ///< [MASK], where there are marks.
  static constexpr std::size_t kMarked = 4;  ///< Entries before the words, where there are marks.

  struct Options {
    std::size_t most = SIZE_MAX;  ///< Entries, with those that are no words; at least these.
    std::size_t min_count = 1;    ///< Rarer words stay unknown.
    bool has_marks = false;
  };

  /// Counts the words of `texts`.
  Vocabulary(std::span<const std::string> texts, const Options& options);
  /// One that was stored in `file`: all entries by number, as `words` gives them.
  /// Errors: KoloError(kData) naming the file, and the entry that is not what it has to be.
  static Vocabulary from_entries(std::vector<std::string> entries,
                                 const std::filesystem::path& file);

  std::size_t size() const override { return words_.size(); }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::int32_t padding() const override { return kPadding; }
  std::int32_t no_token() const override { return kUnknown; }
  std::optional<Marks> marks() const override;
  Range tokens() const override;
  TextFiles files() const override;
  std::int32_t id(std::string_view word) const;
  /// Before: id is below size().
  const std::string& word(std::int32_t id) const { return words_[static_cast<std::size_t>(id)]; }
  /// All entries by number.
  const std::vector<std::string>& words() const { return words_; }

 private:
  Vocabulary() = default;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  std::vector<std::string> words_;  // by id; the first ones are no words
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace kolo::trainer
