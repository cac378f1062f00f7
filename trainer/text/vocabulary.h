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

/// A vocabulary for models that read whole texts. It numbers the tokens of texts, which are words
/// or byte pairs, and special entries.
///
/// Marks: [CLS], the first entry of a text, represents the text; [MASK] replaces a hidden token.
/// Immutable. Threads: any.
class TextVocabulary {
 public:
  struct Marks {
    std::int32_t text;    ///< Number of the entry [CLS].
    std::int32_t hidden;  ///< Number of the entry [MASK].
  };
  /// The entries with numbers in [first, end).
  struct Range {
    std::int32_t first;
    std::int32_t end;
    std::size_t size() const { return static_cast<std::size_t>(end - first); }
  };

  virtual ~TextVocabulary() = default;

  /// The number of entries, including special ones.
  virtual std::size_t size() const = 0;
  /// The tokens of a text, without marks.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The number of the entry that fills a text up to the sample's length.
  virtual std::int32_t padding() const = 0;
  /// The number of the entry that represents a text without tokens.
  virtual std::int32_t no_token() const = 0;
  virtual std::optional<Marks> marks() const = 0;
  /// The entries that are tokens of texts, except the entry for unknown words.
  virtual Range tokens() const = 0;
  /// Files from which `load_vocabulary` makes an equal vocabulary.
  virtual TextFiles files() const = 0;
};

/// The format of whole texts: the inputs "tokens", int32 [max_length] with entries of `vocabulary`,
/// and "length", int32, the number of tokens before padding.
SampleFormat text_format(const TextVocabulary& vocabulary, std::size_t max_length);

/// The vocabulary of a tokenizer: its tokens keep their numbers; padding and, if there are any,
/// marks follow. So texts that are already tokenized need no changes.
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

/// Splits a text into lower-case words. Other characters except white space are words, too.
///
/// A word is a run of letters, digits, underscores, apostrophes and bytes above 127, so that UTF-8
/// characters stay whole. Only ASCII letters become lower case.
std::vector<std::string> split_words(std::string_view text);

/// A vocabulary of words. Entry 0 is padding, and entry 1 stands for any unknown word. Marks, if
/// there are any, are next, then the words by descending frequency, in byte order if equally
/// frequent.
class Vocabulary final : public TextVocabulary {
 public:
  /// Name of the file with the entries; see `from_numbered_json`.
  static constexpr const char* kFile = "words.json";

  static constexpr std::int32_t kPadding = 0;
  static constexpr std::int32_t kUnknown = 1;
  static constexpr std::int32_t kClass = 2;  ///< Number of [CLS], if there are marks.
  static constexpr std::int32_t kMask = 3;   ///< Number of [MASK], if there are marks.
  static constexpr std::size_t kMarked = 4;  ///< Number of special entries, if there are marks.

  struct Options {
    std::size_t most = SIZE_MAX;  ///< Largest number of entries, including special ones.
    std::size_t min_count = 1;    ///< Number of occurrences below which a word is unknown.
    bool has_marks = false;
  };

  /// Makes a vocabulary of the words of `texts`.
  Vocabulary(std::span<const std::string> texts, const Options& options);
  /// Restores a vocabulary from its entries in the order of their numbers, as `words` returns them.
  /// `file` is the file from which they come.
  /// Errors: KoloError(kData) naming the file and an invalid entry.
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
  /// The word of entry `id`. Before: id is in [0, size()).
  const std::string& word(std::int32_t id) const { return words_[static_cast<std::size_t>(id)]; }
  /// All entries in the order of their numbers.
  const std::vector<std::string>& words() const { return words_; }

 private:
  Vocabulary() = default;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  std::vector<std::string> words_;  // entries by number, special ones first
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

struct Config;

/// Loads the vocabulary of words or byte pairs whose files are in config.text_files. If there is
/// none, builds a vocabulary from the words of `texts`, the training data.
/// Errors: those of `from_numbered_json`, `Vocabulary::from_entries` and `make_tokenizer`;
///         KoloError(kData) naming a file whose marks contradict config.text_marks.
std::shared_ptr<const TextVocabulary> load_vocabulary(const Config& config,
                                                      std::span<const std::string> texts);

/// The options that formats of words read; see `DatasetEntry::reads`.
std::vector<std::string> word_options();

/// Whether `files` contain a vocabulary.
bool has_vocabulary(const TextFiles& files);

}  // namespace kolo::trainer
