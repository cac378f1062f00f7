#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Bytes to vectors: y[s, t] = token[byte] + position[t].
///
/// Shape: bytes are [sequences, length], the tables [256, width] and [length, width], y is
///        [sequences · length, width]. Registers `name`.token and `name`.position.
/// Not a `Layer`: its input is bytes and has no gradient.
class Embedding {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    float deviation;
  };

  Embedding(ParameterSet& parameters, const std::string& name, const Options& options);

  /// For an output layer that shares the table.
  Parameter& token() { return token_; }

  std::span<const float> forward(std::span<const std::uint8_t> bytes);

  /// Adds to the gradient of the token table, which the output layer has written in the same pass,
  /// and reports both tables ready.
  void backward(std::span<const float> output_gradient);

 private:
  std::size_t length_;
  std::size_t width_;
  Parameter& token_;
  Parameter& position_;
  Tensor output_;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace kolo::trainer
