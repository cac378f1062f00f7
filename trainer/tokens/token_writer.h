#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/durable_file.h"
#include "trainer/tokens/token_folder.h"

namespace kolo::trainer {

/// Writes tokens to files of a folder, each with at most so many: train-00000.bin, train-00001.bin
/// …
///
/// Threads: one. Errors: KoloError(kIo) naming the file.
class TokenWriter {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string part;            ///< Beginning of the files' names.
    std::size_t width;           ///< Bytes of a token: 2 or 4.
    std::uint64_t shard_tokens;  ///< Tokens of a file at most; at least 1.
  };

  explicit TokenWriter(Options options);

  void write(std::span<const std::int32_t> tokens);
  std::uint64_t tokens() const { return tokens_; }

  /// Completes the last file and waits until the device has it. All files, in their order.
  std::vector<TokenFolder::Shard> finish();

 private:
  void finish_shard();

  Options options_;
  std::uint64_t tokens_ = 0;
  std::vector<TokenFolder::Shard> shards_;  // the last one is open if `file_` is
  std::optional<DurableFile> file_;
};

}  // namespace kolo::trainer
