#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Texts to the means of the vectors of their words: y[s] is the mean of table[id] over the first
/// lengths[s] ids of text s, and zero for a text without words.
///
/// Shape: ids are [texts, length], lengths [texts], the table [words, width], y is [texts, width].
///        Registers `name`, a table whose gradient has the rows of the words that occurred.
/// Source: Joulin et al., "Bag of Tricks for Efficient Text Classification", EACL 2017.
/// Not a `Layer`: its input is integers and has no gradient.
class EmbeddingBag {
 public:
  struct Options {
    std::size_t texts;
    std::size_t length;  ///< Ids of a text, of which the last may be padding.
    std::size_t words;   ///< Size of the vocabulary.
    std::size_t width;
    float deviation;  ///< Of initial values.
  };

  EmbeddingBag(ParameterSet& parameters, const std::string& name, const Options& options);

  /// Before: ids are in 0 … words - 1, lengths in 0 … length; both stay valid until `backward`
  /// returns.
  std::span<const float> forward(std::span<const std::int32_t> ids,
                                 std::span<const std::int32_t> lengths);

  void backward(std::span<const float> output_gradient);

 private:
  std::span<const std::int32_t> words_of(std::size_t text) const;

  Options options_;
  Parameter& table_;
  Tensor output_;
  std::span<const std::int32_t> ids_, lengths_;
};

}  // namespace kolo::trainer
