#pragma once

#include <cstddef>
#include <span>

#include "trainer/layers/layer.h"
#include "trainer/layers/packed_sequences.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// y[s] is the mean of the rows of sequence s, and zero for one without steps.
///
/// Shape: x is [sequences.rows(), width], y is [sequences.sequences(), width].
class SequenceMean final : public Layer {
 public:
  /// `sequences` outlives the layer.
  SequenceMean(const PackedSequences& sequences, std::size_t width)
      : sequences_(sequences),
        width_(width),
        output_({sequences.sequences(), width}),
        input_gradient_({sequences.capacity(), width}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  /// The gradient of padding is zero.
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  float share_of_a_row(std::size_t sequence) const {
    return 1.0f / static_cast<float>(sequences_.length_of(sequence));
  }

  const PackedSequences& sequences_;
  std::size_t width_;
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
