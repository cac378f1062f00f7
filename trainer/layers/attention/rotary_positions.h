#pragma once

#include <cstddef>
#include <span>

#include "trainer/layers/attention/self_attention.h"
#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Turns queries and keys by angles that grow with their position, so that their products depend
/// on how far two positions are apart: at position p, pair i of the n pairs of a head turns by
/// p / 10000^(i / n).
///
/// Element i makes a pair with i + n. Neighbours, as in the source, would do the same with the
/// rows of the query's and key's weights in another order.
///
/// Shape:  x and y are [sequences · length, 3 · width] with query, key and value side by side, as
///         `SelfAttention` takes them; values stay as they are.
/// Before: a head has an even width.
/// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; pairs
///         as in Black et al., "GPT-NeoX-20B", 2022.
class RotaryPositions final : public Layer {
 public:
  explicit RotaryPositions(const SelfAttention::Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  void rotate(std::span<const float> from, std::size_t past, const Tensor& sines,
              std::span<float> to) const;

  SelfAttention::Options options_;
  Tensor cosines_;         // [length, n]
  Tensor sines_;           // the same
  Tensor opposite_sines_;  // of angles that turn back
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
