#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Looks up rows of a table: y[i] = table[ids[i]]. It is no `Layer`, because ids have no gradient.
///
/// Shape: ids are [count], the table is [entries, width], y is [count, width]. Registers the table
///        as the parameter `name`; its gradient is sparse: the rows that were looked up.
class Lookup {
 public:
  struct Options {
    std::size_t count;
    std::size_t entries;
    std::size_t width;
    float deviation;  ///< Standard deviation of initial values.
    /// An id whose row is zero and stays zero.
    std::optional<std::int32_t> padding = std::nullopt;
  };

  Lookup(ParameterSet& parameters, const std::string& name, const Options& options);

  /// Looks up at most `count` ids. Before: ids are in [0, entries), valid until `backward` returns.
  std::span<const float> forward(std::span<const std::int32_t> ids);

  void backward(std::span<const float> output_gradient);

 private:
  Options options_;
  Parameter& table_;
  Tensor output_;
  std::span<const std::int32_t> ids_;
};

/// Token embedding: y[s, t] = token[ids[s, t]] + position[t], or without positions y[s, t] =
/// token[ids[s, t]]. It is not a `Layer`, because ids are integers and have no gradient.
///
/// Shape: ids are [sequences, length], or fewer positions per sequence if no backward pass follows;
///        the tables are [tokens, width] and [length, width]; y is [sequences · length, width].
///        Registers the tables `name`.token and, with positions, `name`.position.
class Embedding {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t tokens;  ///< Size of the vocabulary.
    std::size_t width;
    float deviation;
    bool has_positions = true;              ///< Whether there is a table of positions.
    std::optional<std::size_t> chunk = {};  ///< Largest number of positions per pass; empty:
                                            ///< length.
    TensorRanks ranks = {};                 ///< Ranks among which the tokens are divided.
  };

  Embedding(ParameterSet& parameters, const std::string& name, const Options& options);

  /// The token table, for an output layer that shares it.
  Parameter& token() { return token_; }

  /// Embeds `ids`; the first id of each sequence has position `past`.
  /// Before: ids are in [0, tokens) and stay valid until `backward` returns.
  std::span<const float> forward(std::span<const std::int32_t> ids, std::size_t past = 0);

  void backward(std::span<const float> output_gradient);

 private:
  /// Whether this rank has the row of token `id`.
  bool has(std::int32_t id) const {
    return static_cast<std::size_t>(id) - first_ < token_.shape()[0];
  }
  /// `table` is a span of mutable or const floats.
  template <typename Table>
  Table row_of(Table table, std::int32_t id) const {
    return table.subspan((static_cast<std::size_t>(id) - first_) * width_, width_);
  }

  std::size_t sequences_;
  std::size_t length_;
  std::size_t width_;
  TensorRanks ranks_;
  std::size_t first_;  // first token of this rank
  Parameter& token_;
  Parameter* position_;  // null without positions
  Tensor output_;
  std::span<const std::int32_t> ids_;
};

/// Bag of words: y[s] is the mean of table[id] over the first lengths[s] ids of text s, or zero for
/// a text without words. It is not a `Layer`, because ids are integers and have no gradient.
///
/// Shape: ids are [texts, length], lengths [texts], the table [words, width], y is [texts, width].
///        Registers the table as the parameter `name`; its gradient is sparse: the rows of words
///        that occurred.
/// Source: Joulin et al., "Bag of Tricks for Efficient Text Classification", EACL 2017.
class EmbeddingBag {
 public:
  struct Options {
    std::size_t texts;
    std::size_t length;  ///< Ids per text, including padding at the end.
    std::size_t words;   ///< Size of the vocabulary.
    std::size_t width;
    float deviation;  ///< Standard deviation of initial values.
  };

  EmbeddingBag(ParameterSet& parameters, const std::string& name, const Options& options);

  /// Before: ids are in [0, words) and lengths in [0, length]; both stay valid until `backward`
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

/// Selects rows of each sequence: y[s, i] = x[s, positions[s, i]]. Positions may repeat.
///
/// Shape: x is [sequences · length, width], positions are [sequences, taken], y is [sequences ·
///        taken, width].
class RowSelection final : public Layer {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t taken;  ///< Selected rows per sequence.
    std::size_t width;
  };

  explicit RowSelection(const Options& options);

  /// Sets the positions for the next passes. By default, each selected row is the first of its
  /// sequence.
  /// Before: positions are in [0, length) and stay valid until `backward` returns.
  void set_positions(std::span<const std::int32_t> positions);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// The index of the input row that output row `row` copies.
  std::size_t source_of(std::size_t row) const;

  Options options_;
  Tensor output_;
  Tensor input_gradient_;
  std::span<const std::int32_t> positions_;
};

}  // namespace kolo::trainer
