#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::trainer {

/// The vocabulary files of a model: contents by file name. Without them, the model's weights cannot
/// be used for texts.
struct TextFiles {
  /// The names that a vocabulary file can have.
  static constexpr std::array kNames = {"bytes.txt", "classes.json", "merges.txt", "vocab.json",
                                        "words.json"};

  std::map<std::string, std::string> texts;
  std::filesystem::path origin;  ///< Folder or file from which the contents come, for errors.

  bool empty() const { return texts.empty(); }
  /// The contents of the file of this name, or null if there is none.
  const std::string* find(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : &found->second;
  }
  std::filesystem::path path(const std::string& name) const { return origin / name; }
  /// A hash of names and contents.
  std::uint64_t hash() const;
};

/// Reads the vocabulary files in `folder`. The result is empty if there is no such folder.
/// Errors: KoloError(kData) naming a file that cannot be read.
TextFiles read_text_files(const std::filesystem::path& folder);

/// Selects the vocabulary files among `texts`, which come from the file `origin`.
TextFiles select_text_files(const std::map<std::string, std::string>& texts,
                            const std::filesystem::path& origin);

/// Writes the files to `folder`, which is created if needed. Errors: KoloError(kIo) naming a file.
void write_text_files(const TextFiles& files, const std::filesystem::path& folder);

/// Converts texts to tokens and back. A token is an integer in [0, size()) that stands for one or
/// more bytes; the bytes of a text's tokens form the text.
///
/// Immutable. Threads: any.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The number of different tokens.
  virtual std::size_t size() const = 0;

  /// Converts a text of any bytes to tokens. `decode` restores the text.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The bytes of a token, valid as long as this object. Before: `token` is in [0, size()).
  virtual std::string_view bytes_of(std::int32_t token) const = 0;

  /// The token that separates two texts, or empty if there is none. `encode` does not return it.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// Files from which `make_tokenizer` makes an equal tokenizer.
  virtual TextFiles files() const = 0;

  /// Converts tokens to text. Before: every token is in [0, size()).
  std::string decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    for (const std::int32_t token : tokens) text += bytes_of(token);
    return text;
  }
};

/// A tokenizer with a token for each value of a byte.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::size_t kSize = 256;
  /// The file by which `make_tokenizer` recognises this tokenizer; it holds an explanation.
  static constexpr const char* kFile = "bytes.txt";

  std::size_t size() const override { return kSize; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t token) const override;
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  TextFiles files() const override;
};

/// Makes the tokenizer whose files are among `files`; returns null if there is none.
/// Errors: those of `BytePairEncoding::from_files`.
std::shared_ptr<const Tokenizer> make_tokenizer(const TextFiles& files);

// GPT-2's files write each byte as a visible character in UTF-8. Printable Latin-1 characters stand
// for themselves; the other bytes, in order, are U+0100 and the following characters: a space is
// "Ġ", a line feed "Ċ".
// Source: https://github.com/openai/gpt-2, src/encoder.py, bytes_to_unicode.

/// All bytes in the order of their characters, which is also their order in GPT-2's vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

std::string to_visible(std::string_view bytes);

/// The inverse of `to_visible`. Returns empty if a character stands for no byte.
std::optional<std::string> from_visible(std::string_view characters);

// These functions write and read names with their numbers as a JSON object, in the layout of
// GPT-2's vocab.json: {"!": 0, "\"": 1, …}. Names are written as by `to_visible`.

/// Writes `names`, which are all different, numbered by position.
std::string to_numbered_json(const std::vector<std::string>& names);

/// Reads the names, in the order of their numbers. Errors: KoloError(kData) naming `file`, with the
/// offset if the text is not JSON; also if a name is not written as by `to_visible`, or if the
/// numbers are not 0, 1, 2, …, each once.
std::vector<std::string> from_numbered_json(const std::string& json,
                                            const std::filesystem::path& file);

}  // namespace kolo::trainer
