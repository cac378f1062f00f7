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

/// Vocabulary files of a model by name, with their contents: without them, its weights cannot read
/// a text.
struct TextFiles {
  /// All names that such a file can have.
  static constexpr std::array kNames = {"bytes.txt", "classes.json", "merges.txt", "vocab.json",
                                        "words.json"};

  std::map<std::string, std::string> texts;
  std::filesystem::path origin;  ///< Folder or file of origin, for errors.

  bool empty() const { return texts.empty(); }
  /// Returns null if there is no file of this name.
  const std::string* find(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : &found->second;
  }
  std::filesystem::path path(const std::string& name) const { return origin / name; }
  /// Hash of names and texts.
  std::uint64_t hash() const;
};

/// Reads the vocabulary files in `folder`; empty if there is no such folder.
/// Errors: KoloError(kData) naming a file that cannot be read.
TextFiles read_text_files(const std::filesystem::path& folder);

/// Selects the vocabulary files among `texts`, which come from `origin`.
TextFiles select_text_files(const std::map<std::string, std::string>& texts,
                            const std::filesystem::path& origin);

/// Writes the files into a folder, which is created if needed. Errors: KoloError(kIo) naming the
/// file.
void write_text_files(const TextFiles& files, const std::filesystem::path& folder);

/// Converts texts to tokens, which are integers below `size()`, and back. Each token stands for
/// bytes, and a text is the concatenation of its tokens' bytes.
///
/// Immutable. Threads: any.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Number of entries of the vocabulary.
  virtual std::size_t size() const = 0;

  /// Accepts any bytes. `decode` restores them.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The bytes that a token stands for; valid as long as this object. Before: `token` is in [0,
  /// size()).
  virtual std::string_view bytes_of(std::int32_t token) const = 0;

  /// The token that separates two texts. It occurs in no text.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// The files from which `make_tokenizer` makes an equal tokenizer.
  virtual TextFiles files() const = 0;

  /// Before: every token is in [0, size()).
  std::string decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    for (const std::int32_t token : tokens) text += bytes_of(token);
    return text;
  }
};

/// A tokenizer whose tokens are the bytes of a text.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::size_t kSize = 256;
  /// The file that marks this tokenizer; it holds a sentence for people.
  static constexpr const char* kFile = "bytes.txt";

  std::size_t size() const override { return kSize; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t token) const override;
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  TextFiles files() const override;
};

/// Makes the tokenizer whose files are among `files`; null if there is none.
/// Errors: KoloError(kData) as `BytePairEncoding::from_files`.
std::shared_ptr<const Tokenizer> make_tokenizer(const TextFiles& files);

// GPT-2 writes bytes as visible characters, in UTF-8: printable Latin-1 characters as themselves,
// and the other bytes, in order, as U+0100 and the characters that follow it. A space is "Ġ", a
// line feed "Ċ".
// Source: https://github.com/openai/gpt-2, src/encoder.py, bytes_to_unicode.

/// All bytes in the order of their characters, which is their order in GPT-2's vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

std::string to_visible(std::string_view bytes);

/// Returns empty if a character stands for no byte.
std::optional<std::string> from_visible(std::string_view characters);

// Names with their numbers as a JSON object, in the layout of GPT-2's vocab.json: {"!": 0, "\"": 1,
// …}. Bytes are written as by `to_visible`.

/// Writes distinct `names`, numbered by position.
std::string to_numbered_json(const std::vector<std::string>& names);

/// Reads the names in order of their numbers. Errors: KoloError(kData) naming `file`, with the
/// offset if it is not JSON; a name that is not written in that alphabet; numbers other than 0, 1,
/// 2 … once each.
std::vector<std::string> from_numbered_json(const std::string& json,
                                            const std::filesystem::path& file);

}  // namespace kolo::trainer
