#pragma once

#include <span>

namespace kolo::trainer {

/// One step of a model for a batch whose shape is fixed at construction.
///
/// Buffers:  what `forward` and `backward` return belongs to the layer and is valid until its next
///           call; the input of `forward` must stay valid until `backward` returns.
/// Before:   `backward` follows a `forward` and overwrites the gradients of the layer's parameters,
///           whose memory is bound, then calls `gradient_ready` of each.
/// Threads:  one.
class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::span<const float> forward(std::span<const float> input) = 0;

  /// Computes the gradient of the input from that of the output.
  virtual std::span<const float> backward(std::span<const float> output_gradient) = 0;
};

}  // namespace kolo::trainer
