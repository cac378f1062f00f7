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

/// Writes tokens to files in a folder: train-00000.bin, train-00001.bin, …, each with a limited
/// number of tokens.
///
/// Threads: one. Errors: KoloError(kIo) naming the file.
class TokenWriter {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string part;            ///< Prefix of the file names, such as "train".
    std::size_t width;           ///< Bytes per token: 2 or 4.
    std::uint64_t shard_tokens;  ///< Largest number of tokens per file, at least 1.
  };

  explicit TokenWriter(Options options);

  void write(std::span<const std::int32_t> tokens);
  std::uint64_t tokens() const { return tokens_; }

  /// Completes the last file and blocks until it is durable. Returns all files in order.
  std::vector<TokenFolder::Shard> finish();

 private:
  void finish_shard();

  Options options_;
  std::uint64_t tokens_ = 0;
  std::vector<TokenFolder::Shard> shards_;  // the last one is incomplete if `file_` is set
  std::optional<DurableFile> file_;
};

struct TokenizeOptions {
  std::filesystem::path data;  ///< Path of a text, or of a directory that `Corpus` can read.
  std::filesystem::path out;   ///< Folder that is created for the tokens.
  /// Folder with the tokenizer's files; empty: byte pairs are learnt from the text.
  std::filesystem::path tokenizer = {};
  std::size_t vocabulary = 8192;                        ///< Largest number of learnt tokens.
  std::uint64_t shard_tokens = std::uint64_t{1} << 27;  ///< Largest number of tokens per file.
};

/// Writes a text as tokens to a folder. The last tenth of the text is held out and does not
/// influence the vocabulary. If the text is a directory, an end-of-text token separates its files.
///
/// The folder is called "OUT.partial" until it is complete. The text is read in parts, so it may be
/// larger than memory; learning keeps only distinct pieces in memory. `note` receives messages
/// about progress.
/// Threads: one.
/// Errors: KoloError(kData) for a text that is unreadable or too short, or for an invalid
///         tokenizer; KoloError(kIo) for a folder that exists already or cannot be written.
void tokenize(const TokenizeOptions& options, const std::function<void(const std::string&)>& note);

/// Compares the files of a token folder with the lengths and checksums in its description. Calls
/// `note` for each file. Errors: KoloError(kData) naming the first file that differs.
void verify_tokens(const std::filesystem::path& folder,
                   const std::function<void(const std::string&)>& note);

/// Runs `kolo-train tokenize`, which writes or checks a folder of tokens. Returns the exit status.
/// Errors: UsageError for invalid arguments; those of `tokenize` and `verify_tokens`.
int run_tokenize_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
