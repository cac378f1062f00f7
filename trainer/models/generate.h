#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/models/gpt.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

struct GenerateOptions {
  std::size_t bytes = 400;   ///< The token that completes them is the last.
  double temperature = 0.8;  ///< 0: always the most likely token.
  std::string prompt = "\n";
  std::uint64_t seed = 1;
};

/// Text with which a model continues the prompt, without the prompt. Computed on the processor in
/// float32; depends on `weights` and options only. Each token follows from those in the window of a
/// GptReader; an end of text is shown by its name. Before: the prompt is not empty; `weights` are
/// those of a Gpt made with `shape`, for any number of sequences, whose tokens are those of
/// `tokenizer`.
std::string generate(const Gpt::Options& shape, const ParameterSet& weights,
                     const Tokenizer& tokenizer, const GenerateOptions& options);

/// `text` with control characters other than line feed and tab replaced by '?'.
std::string printable(std::string text);

}  // namespace kolo::trainer
