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

/// Writes tokens to files in a folder: train-00000.bin, train-00001.bin …, each with a limited
/// number of tokens.
///
/// Threads: one. Errors: KoloError(kIo) naming the file.
class TokenWriter {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string part;            ///< Prefix of the file names.
    std::size_t width;           ///< Bytes of a token: 2 or 4.
    std::uint64_t shard_tokens;  ///< Most tokens per file; at least 1.
  };

  explicit TokenWriter(Options options);

  void write(std::span<const std::int32_t> tokens);
  std::uint64_t tokens() const { return tokens_; }

  /// Completes the last file and waits until it is durable. Returns all files in order.
  std::vector<TokenFolder::Shard> finish();

 private:
  void finish_shard();

  Options options_;
  std::uint64_t tokens_ = 0;
  std::vector<TokenFolder::Shard> shards_;  // the last one is open if `file_` is set
  std::optional<DurableFile> file_;
};

struct TokenizeOptions {
  std::filesystem::path data;  ///< A text, or a directory as `Corpus` reads it.
  std::filesystem::path out;   ///< Folder to create.
  /// Folder of the tokenizer to use; empty: learn byte pairs.
  std::filesystem::path tokenizer = {};
  std::size_t vocabulary = 8192;                        ///< Most tokens to learn.
  std::uint64_t shard_tokens = std::uint64_t{1} << 27;  ///< Most tokens per file.
};

/// Tokenizes a text into a folder. The last tenth of the text is held out and does not influence
/// the vocabulary. In a directory, files are separated by an end-of-text token.
///
/// The folder is "OUT.partial" until it is complete. The text is read in parts, so it may be larger
/// than memory; learning keeps its distinct pieces in memory. `note` receives progress messages.
/// Threads: one.
/// Errors: KoloError(kData) for a text that cannot be read or is too short to hold out a part, or
///         an invalid tokenizer; KoloError(kIo) for a folder that exists or cannot be written.
void tokenize(const TokenizeOptions& options, const std::function<void(const std::string&)>& note);

/// Checks the files of a token folder against their lengths and checksums. Errors: KoloError(kData)
/// naming the first file that differs.
void verify_tokens(const std::filesystem::path& folder,
                   const std::function<void(const std::string&)>& note);

/// `kolo-train tokenize`: tokenizes a text into a folder, or checks such a folder. Returns the exit
/// status. Errors: UsageError for invalid arguments; those of trainer/tokens/tokenize.h.
int run_tokenize_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
