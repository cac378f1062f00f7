#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Tokens to vectors: y[s, t] = token[id] + position[t], or y[s, t] = token[id].
///
/// Shape: ids are [sequences, length], or fewer positions of each sequence if no backward pass
///        follows; the tables are [tokens, width] and [length, width], y is [sequences · length,
///        width]. Registers `name`.token and, if there is one, `name`.position.
/// Not a `Layer`: its input is integers and has no gradient.
class Embedding {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t tokens;  ///< Size of the vocabulary.
    std::size_t width;
    float deviation;
    bool has_positions = true;              ///< Whether there is a table of positions.
    std::optional<std::size_t> chunk = {};  ///< Positions of a pass at most, else all.
  };

  Embedding(ParameterSet& parameters, const std::string& name, const Options& options);

  /// For an output layer that shares the table.
  Parameter& token() { return token_; }

  /// The first position is `past`.
  /// Before: the ids are in 0 … tokens - 1 and stay valid until `backward` returns.
  std::span<const float> forward(std::span<const std::int32_t> ids, std::size_t past = 0);

  void backward(std::span<const float> output_gradient);

 private:
  /// `table` is a span of floats that are written or read.
  template <typename Table>
  Table row_of(Table table, std::int32_t id) const {
    return table.subspan(static_cast<std::size_t>(id) * width_, width_);
  }

  std::size_t sequences_;
  std::size_t length_;
  std::size_t width_;
  Parameter& token_;
  Parameter* position_;  // null if there is none
  Tensor output_;
  std::span<const std::int32_t> ids_;
};

}  // namespace kolo::trainer
