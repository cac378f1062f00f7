#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// Numbers the tokens of texts that a model reads whole, which are words or byte pairs, and special
/// entries that occur in no text.
///
/// Marks: a text begins with [CLS], which represents the whole text, and [MASK] replaces a hidden
///        token.
/// Immutable. Threads: any.
class TextVocabulary {
 public:
  struct Marks {
    std::int32_t text;    ///< [CLS]
    std::int32_t hidden;  ///< [MASK]
  };
  /// The entries [first, end).
  struct Range {
    std::int32_t first;
    std::int32_t end;
    std::size_t size() const { return static_cast<std::size_t>(end - first); }
  };

  virtual ~TextVocabulary() = default;

  /// Number of entries, including special ones.
  virtual std::size_t size() const = 0;
  /// The tokens of a text, without marks.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The entry that fills up a text.
  virtual std::int32_t padding() const = 0;
  /// The entry for a text without tokens.
  virtual std::int32_t no_token() const = 0;
  virtual std::optional<Marks> marks() const = 0;
  /// The entries that are tokens of texts, without the entry for unknown words.
  virtual Range tokens() const = 0;
  /// The files from which `load_vocabulary` makes an equal vocabulary.
  virtual TextFiles files() const = 0;
};

/// Inputs of whole texts: "tokens", int32 [max_length] of the vocabulary, and "length", int32, the
/// number of tokens before padding.
SampleFormat text_format(const TextVocabulary& vocabulary, std::size_t max_length);

/// The tokens of a tokenizer with their numbers, then padding, then marks if there are any, so that
/// texts that are already tokenized stay unchanged.
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

/// The words of a text in lower case, and each other character except white space.
///
/// A word is a run of letters, digits, underscores, apostrophes and bytes above 127, so that UTF-8
/// characters stay whole; only ASCII letters become lower case.
std::vector<std::string> split_words(std::string_view text);

/// Numbers words: 0 is padding, 1 any unknown word, then marks if there are any, then the words by
/// descending frequency, and in byte order on a tie.
class Vocabulary final : public TextVocabulary {
 public:
  /// The file with the entries; see `from_numbered_json`.
  static constexpr const char* kFile = "words.json";

  static constexpr std::int32_t kPadding = 0;
  static constexpr std::int32_t kUnknown = 1;
  static constexpr std::int32_t kClass = 2;  ///< [CLS], with marks.
  static constexpr std::int32_t kMask = 3;   ///< [MASK], with marks.
  static constexpr std::size_t kMarked = 4;  ///< Entries before the words, with marks.

  struct Options {
    std::size_t most = SIZE_MAX;  ///< Most entries, including special ones.
    std::size_t min_count = 1;    ///< Rarer words are unknown.
    bool has_marks = false;
  };

  /// Counts the words of `texts`.
  Vocabulary(std::span<const std::string> texts, const Options& options);
  /// Restores a vocabulary stored in `file` from all entries by number, as `words` returns them.
  /// Errors: KoloError(kData) naming the file and an entry that is invalid.
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

  std::vector<std::string> words_;  // by id, beginning with the special entries
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

struct Config;

/// Loads the vocabulary of words or byte pairs whose files are among config.text_files, or else
/// builds one from the words of `texts`, the training data.
/// Errors: KoloError(kData) as `from_numbered_json`, `Vocabulary` and `make_tokenizer`, and naming
///         a file with marks if config has none, or the reverse.
std::shared_ptr<const TextVocabulary> load_vocabulary(const Config& config,
                                                      std::span<const std::string> texts);

/// The options of data that is split into words; see `DatasetEntry::reads`.
std::vector<std::string> word_options();

/// Whether one of the files is a vocabulary.
bool has_vocabulary(const TextFiles& files);

}  // namespace kolo::trainer
