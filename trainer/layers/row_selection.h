#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Some rows of each sequence: y[s, i] = x[s, positions[s, i]]. A row may be taken more than once.
///
/// Shape: x is [sequences · length, width], positions are [sequences, taken], y is
///        [sequences · taken, width].
class RowSelection final : public Layer {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t taken;  ///< Rows of each sequence.
    std::size_t width;
  };

  explicit RowSelection(const Options& options);

  /// For the next passes; unless set, the first row of each sequence, over and over.
  /// Before: each in 0 … length - 1; they stay valid until `backward` returns.
  void set_positions(std::span<const std::int32_t> positions);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// The row of the input that is row `row` of the output.
  std::size_t source_of(std::size_t row) const;

  Options options_;
  Tensor output_;
  Tensor input_gradient_;
  std::span<const std::int32_t> positions_;
};

}  // namespace kolo::trainer
