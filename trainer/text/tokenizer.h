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

/// Small files by name, with their texts: the vocabularies without which a model's weights cannot
/// read a text.
struct TextFiles {
  /// Every name that such a file can have.
  static constexpr std::array kNames = {"bytes.txt", "classes.json", "merges.txt", "vocab.json",
                                        "words.json"};

  std::map<std::string, std::string> texts;
  std::filesystem::path origin;  ///< Folder or file that they came from, for errors.

  bool empty() const { return texts.empty(); }
  /// Null if there is none of this name.
  const std::string* find(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : &found->second;
  }
  std::filesystem::path path(const std::string& name) const { return origin / name; }
  /// Of names and texts.
  std::uint64_t hash() const;
};

/// Those in `folder`; none if there is no such folder.
/// Errors: KoloError(kData) naming a file that cannot be read.
TextFiles read_text_files(const std::filesystem::path& folder);

/// Those among `texts`, which come from `origin`.
TextFiles select_text_files(const std::map<std::string, std::string>& texts,
                            const std::filesystem::path& origin);

/// Writes them into a folder, which is made if needed. Errors: KoloError(kIo) naming the file.
void write_text_files(const TextFiles& files, const std::filesystem::path& folder);

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

/// The tokenizer whose files are among `files`; null if there is none.
/// Errors: KoloError(kData) as `BytePairEncoding::from_files`.
std::shared_ptr<const Tokenizer> make_tokenizer(const TextFiles& files);

// GPT-2 writes bytes as characters that can be seen, in UTF-8: printable ones of Latin-1 as
// themselves, the others, in their order, as U+0100 and the characters that follow it. A space is
// "Ġ", a line feed "Ċ".
// Source: https://github.com/openai/gpt-2, src/encoder.py, bytes_to_unicode.

/// All bytes in the order of their characters, which numbers them in GPT-2's vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

std::string to_visible(std::string_view bytes);

/// Empty if a character stands for no byte.
std::optional<std::string> from_visible(std::string_view characters);

// Names with their numbers as a JSON object, the layout of GPT-2's vocab.json: {"!": 0, "\"": 1,
// …}. Bytes are written as `to_visible` writes them.

/// `names` by number. Each is there once.
std::string to_numbered_json(const std::vector<std::string>& names);

/// The names by number. Errors: KoloError(kData) naming `file`, with the offset where it is no
/// JSON: a name that is no text of that alphabet, numbers that are not 0, 1, 2 … each once.
std::vector<std::string> from_numbered_json(const std::string& json,
                                            const std::filesystem::path& file);

}  // namespace kolo::trainer
