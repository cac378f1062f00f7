#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/layers/dropout_mask.h"
#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// In training, sets a random share of the elements to zero and multiplies the others by
/// 1 / (1 - share), as DropoutMask says; otherwise y = x.
///
/// Shape:  x and y are [samples, width].
/// Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
///         JMLR 2014.
class Dropout final : public Layer {
 public:
  struct Options {
    std::size_t samples;
    std::size_t width;  ///< Elements of a sample.
    DropoutMask::Options mask;
  };

  explicit Dropout(const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  std::size_t width_;
  DropoutMask mask_;
  Tensor factors_;  // and the others: without elements if nothing ever drops out
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
