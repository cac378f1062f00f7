#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kolo::trainer {

/// Describes a folder of tokenized texts, in its file tokens.json:
///
///     tokens.json                      written last
///     vocab.json, merges.txt           the tokenizer's files
///     train-00000.bin, train-00001.bin …, held-out-00000.bin …
///
/// Files of tokens hold nothing but integers, little-endian.
struct TokenFolder {
  static constexpr const char* kFileName = "tokens.json";
  static constexpr std::uint64_t kFormat = 1;

  struct Shard {
    std::string file;
    std::uint64_t tokens = 0;
    std::uint64_t xxh3 = 0;  ///< XXH3-64 of the file.
    friend bool operator==(const Shard&, const Shard&) = default;
  };

  std::size_t width = 2;  ///< Bytes of a token: 2 or 4.
  std::size_t vocabulary = 0;
  std::vector<std::string> tokenizer = {};  ///< Names of its files.
  std::vector<Shard> train = {};
  std::vector<Shard> held_out = {};
  friend bool operator==(const TokenFolder&, const TokenFolder&) = default;
};

std::string to_json(const TokenFolder& folder);

/// The description in `folder`. Errors: KoloError(kData) naming the file, if it is missing,
/// malformed, of another format, or names files outside of its folder.
TokenFolder read_token_folder(const std::filesystem::path& folder);

/// Bytes of the integers that tokens of a vocabulary are stored as.
constexpr std::size_t token_width(std::size_t vocabulary) { return vocabulary <= 65'536 ? 2 : 4; }

}  // namespace kolo::trainer
