#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// A network from bytes (pixels or text) to logits, for a batch of fixed size.
///
/// Threads: one.
class Model {
 public:
  explicit Model(std::uint64_t seed) : parameters_(seed) {}
  virtual ~Model() = default;

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

  /// Shape: `inputs` are the samples of one batch back to back, the result is [rows, classes] with
  ///        one row per image or per byte of text. Valid until the next forward.
  virtual std::span<const float> forward(std::span<const std::uint8_t> inputs) = 0;

  /// Computes the gradients of all parameters from the gradient of the logits. Each is reported
  /// once by `ParameterSet::on_gradient_ready`, starting with the last layer.
  virtual void backward(std::span<const float> logits_gradient) = 0;

 private:
  ParameterSet parameters_;
};

}  // namespace kolo::trainer
