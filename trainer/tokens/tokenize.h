#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace kolo::trainer {

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

}  // namespace kolo::trainer
