#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/compute/device.h"
#include "trainer/models/gpt.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// A Gpt that reads a text token by token, on the processor in float32. Keys and values of all
/// tokens in its window are cached, so another token costs one row of each product, and attention
/// to the window.
///
/// The window is as long as the model's context. When it is full, its later half becomes the new
/// window and is recomputed at the first positions. With 8 tokens of context, and tokens numbered
/// as in the text:
///
///     0 1 2 3 4 5 6 7     full
///     5 6 7 8             token 8 comes: it and three before it are computed
///     5 6 7 8 9           token 9 comes: only it is computed
///
/// So a token is computed at most twice, and always attends to at least half a context, if the text
/// has that many tokens.
class GptReader {
 public:
  /// `weights` are those of a Gpt with options `shape`, except that it may have any number of
  /// sequences.
  GptReader(Gpt::Options shape, const ParameterSet& weights);

  /// Reads further tokens. Returns the logits of the token that follows, valid until the next call.
  /// How a text is divided into calls affects only the order of sums.
  /// Before: `tokens` are not empty.
  std::span<const float> read(std::span<const std::int32_t> tokens);

 private:
  std::span<const float> compute(std::span<const std::int32_t> tokens);

  Device device_;
  Gpt gpt_;
  std::vector<std::int32_t> window_;
};

struct GenerateOptions {
  std::size_t bytes = 400;   ///< Generation stops with the token that reaches this length.
  double temperature = 0.8;  ///< 0: always the most likely token.
  std::string prompt = "\n";
  std::uint64_t seed = 1;
};

/// Generates text that continues the prompt, and returns it without the prompt. Runs on the
/// processor in float32 and depends only on `weights` and options. Each token is drawn given the
/// window of a GptReader; an end-of-text token appears as its name. Before: the prompt is not
/// empty; `weights` are those of a Gpt made with `shape` and any number of sequences, for the
/// tokens of `tokenizer`.
std::string generate(const Gpt::Options& shape, const ParameterSet& weights,
                     const Tokenizer& tokenizer, const GenerateOptions& options);

/// Replaces control characters other than line feed and tab by '?'.
std::string printable(std::string text);

}  // namespace kolo::trainer
