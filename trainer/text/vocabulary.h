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

struct Config;

/// The vocabulary of words or of byte pairs whose files are among config.text_files, or else that
/// of the words of `texts`, the training data.
/// Errors: KoloError(kData) as `from_numbered_json`, `Vocabulary` and `make_tokenizer`, and naming
///         a file that has marks where config has none or the reverse.
std::shared_ptr<const TextVocabulary> load_vocabulary(const Config& config,
                                                      std::span<const std::string> texts);

/// The options of data that becomes words; see `DatasetEntry::reads`.
std::vector<std::string> word_options();

/// Whether one of the files is that of a vocabulary.
bool has_vocabulary(const TextFiles& files);

}  // namespace kolo::trainer
