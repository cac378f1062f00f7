#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/tokens/tokens.h"

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

struct TokenizeOptions {
  std::filesystem::path data;  ///< A text, or a directory as `Corpus` reads it.
  std::filesystem::path out;   ///< Folder to make.
  /// Folder of the tokenizer to use; empty: byte pairs are learnt.
  std::filesystem::path tokenizer = {};
  std::size_t vocabulary = 8192;                        ///< Tokens to learn at most.
  std::uint64_t shard_tokens = std::uint64_t{1} << 27;  ///< Tokens of a file at most.
};

/// Makes a folder of tokens of a text, whose last tenth is held out and does not decide about the
/// vocabulary. Where the text is a directory, its files have an end of text between them.
///
/// The folder appears under its name when it is complete; until then it is "OUT.partial". The text
/// is read in parts, so it may be larger than memory; distinct pieces of it are kept to learn.
/// `note` is told of progress. Threads: one.
/// Errors: KoloError(kData) for a text that cannot be read or has no bytes to hold out, or a
///         tokenizer that is none; KoloError(kIo) for a folder that exists or cannot be written.
void tokenize(const TokenizeOptions& options, const std::function<void(const std::string&)>& note);

/// Compares the files of a folder of tokens with their lengths and sums. Errors: KoloError(kData)
/// naming the first that differs.
void verify_tokens(const std::filesystem::path& folder,
                   const std::function<void(const std::string&)>& note);

/// `kolo-train tokenize`: a text as tokens in a folder, or a check of such a folder. Returns the
/// exit status. Errors: UsageError for other arguments; those of trainer/tokens/tokenize.h.
int run_tokenize_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
