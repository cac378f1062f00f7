#pragma once

#include <cstddef>

#include "trainer/compute/gemm.h"
#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Scaled dot-product attention of each position over itself and earlier ones, in every head: y =
/// softmax(Q Kᵀ / sqrt(head_width)) V, masked beyond the diagonal.
///
/// Shape:  the input [sequences · length, 3 · width] holds query, key and value side by side, the
///         output is [sequences · length, width]; head h owns columns h · head_width ….
/// Source: Vaswani et al., "Attention Is All You Need", 2017.
class CausalSelfAttention final : public Layer {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    std::size_t heads;  ///< Divides width.
  };

  explicit CausalSelfAttention(const Options& options);

  std::span<const float> forward(std::span<const float> input) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  enum Part : std::size_t { kQuery, kKey, kValue };

  // Offset of one head's block in the packed input; rows are 3 · width apart.
  std::size_t packed_offset(std::size_t sequence, std::size_t head, Part part) const;
  Operand packed(const float* data, std::size_t offset) const;
  std::span<float> weights_of(std::size_t sequence, std::size_t head);

  Options options_;
  std::size_t head_width_;
  float factor_;
  Tensor weights_;  // [sequences, heads, length, length]
  Tensor output_;
  Tensor input_gradient_;
  Tensor score_gradient_;  // [length, length], one head at a time
  std::span<const float> input_;
};

}  // namespace kolo::trainer
