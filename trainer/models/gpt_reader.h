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

/// A Gpt that reads a text token by token, on the processor in float32. It caches keys and values
/// of the tokens in its window, so that another token costs one row of each product, and attention
/// to the window.
///
/// The window is as long as the model's context. When it is full, the tokens of its later half
/// become the new window and are recomputed at the first positions. With a context of 8, and tokens
/// numbered as in the text:
///
///     0 1 2 3 4 5 6 7     full
///     5 6 7 8             token 8 is read: tokens 5 to 8 are computed
///     5 6 7 8 9           token 9 is read: only token 9 is computed
///
/// So each token is computed at most twice, and in a long text attends to at least half a context.
class GptReader {
 public:
  /// `weights` are the parameters of a Gpt with options `shape`, except that its number of
  /// sequences may differ.
  GptReader(Gpt::Options shape, const ParameterSet& weights);

  /// Reads the next tokens of the text and returns the logits of the token that follows, valid
  /// until the next call. Splitting a text into calls changes only the order of sums.
  /// Before: `tokens` is not empty.
  std::span<const float> read(std::span<const std::int32_t> tokens);

 private:
  std::span<const float> compute(std::span<const std::int32_t> tokens);

  Device device_;
  Gpt gpt_;
  std::vector<std::int32_t> window_;
};

struct GenerateOptions {
  std::size_t bytes = 400;   ///< Number of bytes at which generation stops, after a whole token.
  double temperature = 0.8;  ///< Randomness of tokens; 0: always the most likely token.
  std::string prompt = "\n";
  std::uint64_t seed = 1;
};

/// Generates text that continues the prompt, and returns it without the prompt. The text depends
/// only on `weights` and options, and is computed on the processor in float32. A GptReader gives
/// the probabilities of each token. An end-of-text token appears as its name. Before: the prompt is
/// not empty; `weights` are the parameters of a Gpt with options `shape`, except for the number of
/// sequences; `tokenizer` made the tokens on which they were trained.
std::string generate(const Gpt::Options& shape, const ParameterSet& weights,
                     const Tokenizer& tokenizer, const GenerateOptions& options);

/// Replaces control characters other than line feed and tab by '?'.
std::string printable(std::string text);

}  // namespace kolo::trainer
