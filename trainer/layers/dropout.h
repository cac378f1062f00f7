#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// In training, sets a random share of the elements to zero and multiplies the others by
/// 1 / (1 - share); otherwise y = x.
///
/// Which elements of a sample drop out depends on seed, layer, epoch and the sample's place in the
/// epoch alone, so it is the same whatever the batch and the number of ranks.
///
/// Shape:  x and y are [samples, width].
/// Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
///         JMLR 2014.
class Dropout final : public Layer {
 public:
  struct Options {
    std::size_t samples;
    std::size_t width;  ///< Elements of a sample.
    float share;        ///< 0 to below 1.
    std::uint64_t seed;
    std::uint64_t layer = 0;  ///< Its number among those of one model.
  };

  explicit Dropout(const Options& options)
      : options_(options),
        factors_({options.samples, options.width}),
        output_({options.samples, options.width}),
        input_gradient_({options.samples, options.width}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  Tensor factors_;
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
