#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// The description of a folder of tokenized texts, in its file tokens.json:
///
///     tokens.json                      written last
///     vocab.json, merges.txt           the tokenizer's files
///     train-00000.bin, train-00001.bin …, held-out-00000.bin …
///
/// Token files contain only little-endian integers.
struct TokenFolder {
  static constexpr const char* kFileName = "tokens.json";
  static constexpr std::uint64_t kFormat = 1;

  struct Shard {
    std::string file;
    std::uint64_t tokens = 0;
    std::uint64_t xxh3 = 0;  ///< XXH3-64 of the file.
    friend bool operator==(const Shard&, const Shard&) = default;
  };

  std::size_t width = 2;  ///< Bytes per token: 2 or 4.
  std::size_t vocabulary = 0;
  std::vector<std::string> tokenizer = {};  ///< Names of the tokenizer's files.
  std::vector<Shard> train = {};
  std::vector<Shard> held_out = {};
  friend bool operator==(const TokenFolder&, const TokenFolder&) = default;
};

std::string to_json(const TokenFolder& folder);

/// The description in `folder`. Errors: KoloError(kData) naming the file, if it is missing,
/// malformed, of another format, or names files outside of its folder.
TokenFolder read_token_folder(const std::filesystem::path& folder);

/// Bytes per stored token for a vocabulary of this size.
constexpr std::size_t token_width(std::size_t vocabulary) { return vocabulary <= 65'536 ? 2 : 4; }

/// Consecutive tokens, little-endian, in memory that `owner` keeps alive.
struct TokenArray {
  std::span<const std::byte> bytes;
  std::size_t width;  ///< Bytes per token: 1, 2 or 4. Divides the number of bytes.
  std::shared_ptr<const void> owner;
  std::filesystem::path file = {};  ///< File of origin, for errors.
  std::size_t offset = 0;           ///< Byte offset of the first token in the file.

  std::size_t size() const { return bytes.size() / width; }
};

/// Consecutive windows of `context` tokens without overlap, in each of several arrays; the target
/// of a token is the next one. Tokens at the end of an array that fill no window are ignored.
///
/// Format: see `token_windows`.
class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::vector<TokenArray> arrays, std::size_t vocabulary, std::size_t context);

  std::size_t size() const override { return first_windows_.back(); }
  const SampleFormat& format() const override { return format_; }
  /// Errors: KoloError(kData) naming file and offset of a token outside of the vocabulary.
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  void copy_tokens(const TokenArray& array, std::size_t begin, std::span<std::int32_t> into) const;

  std::vector<TokenArray> arrays_;
  std::vector<std::size_t> first_windows_;  // index of each array's first window, then the number
                                            // of windows
  std::size_t vocabulary_;
  std::size_t context_;
  SampleFormat format_;
};

/// "tokens" and "next", int32 [context] below `vocabulary`.
SampleFormat token_windows(std::size_t vocabulary, std::size_t context);

}  // namespace kolo::trainer
