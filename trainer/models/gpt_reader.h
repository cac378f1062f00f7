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
/// tokens in its window are kept, so a further token costs one row of each product, and attention
/// to what the window holds.
///
/// The window is the model's context. When it is full, the later half of it becomes the new window
/// and is computed again, at the first positions: 8 tokens of context, numbered in the text:
///
///     0 1 2 3 4 5 6 7     full
///     5 6 7 8             token 8 comes: it and three before it are computed
///     5 6 7 8 9           token 9 comes: only it is computed
///
/// So a token is computed twice at most, and always attends to half a context or more, as far as
/// the text has as much.
class GptReader {
 public:
  /// `weights` are those of a Gpt of `shape`, made for any number of sequences.
  GptReader(Gpt::Options shape, const ParameterSet& weights);

  /// Reads on. Returns the logits of the token that follows, valid until the next call. The way in
  /// which a text is divided into calls has no influence but on the order of sums.
  /// Before: `tokens` are not empty.
  std::span<const float> read(std::span<const std::int32_t> tokens);

 private:
  std::span<const float> compute(std::span<const std::int32_t> tokens);

  Device device_;
  Gpt gpt_;
  std::vector<std::int32_t> window_;
};

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
