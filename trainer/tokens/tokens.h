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

/// The description of a folder of tokenized text, which is stored in the folder as tokens.json:
///
///     tokens.json                      written last
///     vocab.json, merges.txt           the tokenizer's files
///     train-00000.bin, train-00001.bin …, held-out-00000.bin …
///
/// Token files contain only tokens, as little-endian integers.
struct TokenFolder {
  static constexpr const char* kFileName = "tokens.json";
  static constexpr std::uint64_t kFormat = 1;

  struct Shard {
    std::string file;
    std::uint64_t tokens = 0;
    std::uint64_t xxh3 = 0;  ///< XXH3-64 of all bytes of the file.
    friend bool operator==(const Shard&, const Shard&) = default;
  };

  std::size_t width = 2;  ///< Bytes per token in the files: 2 or 4.
  std::size_t vocabulary = 0;
  std::vector<std::string> tokenizer = {};  ///< Names of the tokenizer's files.
  std::vector<Shard> train = {};
  std::vector<Shard> held_out = {};
  friend bool operator==(const TokenFolder&, const TokenFolder&) = default;
};

std::string to_json(const TokenFolder& folder);

/// Reads the description in `folder`. Errors: KoloError(kData) naming the file, if it is missing,
/// malformed, of another format, or names token files outside the folder.
TokenFolder read_token_folder(const std::filesystem::path& folder);

/// The bytes per stored token for a vocabulary of this size.
constexpr std::size_t token_width(std::size_t vocabulary) { return vocabulary <= 65'536 ? 2 : 4; }

/// Consecutive little-endian tokens, in memory that `owner` keeps alive.
struct TokenArray {
  std::span<const std::byte> bytes;
  std::size_t width;  ///< Bytes per token: 1, 2 or 4; a divisor of the number of bytes.
  std::shared_ptr<const void> owner;
  std::filesystem::path file = {};  ///< File from which the tokens come, for errors.
  std::size_t offset = 0;           ///< Byte offset of the first token in that file.

  std::size_t size() const { return bytes.size() / width; }
};

/// A data set of windows of `context` tokens, consecutive and without overlap, from several arrays.
/// The target of a token is the token after it. Tokens after the last whole window are ignored.
///
/// Format: that of `token_windows`.
class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::vector<TokenArray> arrays, std::size_t vocabulary, std::size_t context);

  std::size_t size() const override { return first_windows_.back(); }
  const SampleFormat& format() const override { return format_; }
  /// Copies a window. Errors: KoloError(kData) naming file and offset of a token that is not in the
  /// vocabulary.
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  void copy_tokens(const TokenArray& array, std::size_t begin, std::span<std::int32_t> into) const;

  std::vector<TokenArray> arrays_;
  std::vector<std::size_t> first_windows_;  // number of each array's first window, then of all
                                            // windows
  std::size_t vocabulary_;
  std::size_t context_;
  SampleFormat format_;
};

/// The format of windows: input "tokens" and target "next", int32 [context] in [0, vocabulary).
SampleFormat token_windows(std::size_t vocabulary, std::size_t context);

}  // namespace kolo::trainer
