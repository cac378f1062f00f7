#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/kernels/kernels.h"
#include "trainer/layers/layer.h"
#include "trainer/random.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Computes y = f(x) for each of `count` elements, or for fewer if no backward pass follows.
/// `kFunction` writes f(x) and its derivative.
template <void (*kFunction)(std::span<const float> x, std::span<float> y, std::span<float> slope)>
class ElementwiseLayer final : public Layer {
 public:
  explicit ElementwiseLayer(std::size_t count)
      : output_({count}), slope_({count}), input_gradient_({count}) {}

  std::span<const float> forward(std::span<const float> input, const Pass&) override {
    const std::span<float> output = output_.span().first(input.size());
    kFunction(input, output, slope_.span());
    return output;
  }
  std::span<const float> backward(std::span<const float> output_gradient) override {
    multiply_elements(output_gradient, slope_.span(), input_gradient_.span());
    return input_gradient_.span();
  }

 private:
  Tensor output_, slope_, input_gradient_;
};

using Relu = ElementwiseLayer<relu>;           ///< Computes max(x, 0).
using Gelu = ElementwiseLayer<gelu>;           ///< Computes x · Φ(x) in the tanh approximation.
using Tanh = ElementwiseLayer<trainer::tanh>;  ///< Computes tanh(x).

/// Computes y = main(x) + shortcut(x). Each branch is a sequence of layers; an empty one returns x.
///
/// Shape: x has `inputs` elements and y `outputs`. Both may have fewer if no backward pass follows.
class Residual final : public Layer {
 public:
  Residual(std::size_t inputs, std::size_t outputs)
      : output_({outputs}), input_gradient_({inputs}) {}

  Sequential& main() { return main_; }
  Sequential& shortcut() { return shortcut_; }

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override {
    const std::span<const float> main = main_.forward(input, pass);
    const std::span<float> output = output_.span().first(main.size());
    add(main, shortcut_.forward(input, pass), output);
    return output;
  }
  std::span<const float> backward(std::span<const float> output_gradient) override {
    const std::span<const float> main = main_.backward(output_gradient);
    add(main, shortcut_.backward(output_gradient), input_gradient_.span());
    return input_gradient_.span();
  }

 private:
  Sequential main_, shortcut_;
  Tensor output_, input_gradient_;
};

/// Decides which elements a dropout layer drops. The choice depends only on seed, layer, epoch and
/// the sample's position in the epoch, not on batch size or number of ranks.
class DropoutMask {
 public:
  struct Options {
    float share = 0.0f;  ///< Probability that an element is dropped, in [0, 1).
    std::uint64_t seed = 0;
    std::uint64_t layer = 0;  ///< Index of this dropout layer in its model.
  };

  explicit DropoutMask(const Options& options) : options_(options) {}

  /// Begins a pass. Returns whether elements are dropped in it.
  bool begin(const Pass& pass) {
    is_active_ = pass.is_training && options_.share > 0.0f;
    const std::uint64_t key = Random(options_.seed, kFirstStream + options_.layer).next();
    epoch_key_ = Random(key, pass.epoch).next();
    first_position_ = pass.first_position;
    return is_active_;
  }
  /// Whether elements are dropped in this pass.
  bool is_active() const { return is_active_; }

  /// Writes the factors of one sample's elements: 0 for a dropped element, otherwise 1 / (1 -
  /// share). A sample may have several parts, each with its own random numbers.
  void fill(std::size_t sample, std::uint64_t part, std::span<float> factors) const {
    const float kept = 1.0f / (1.0f - options_.share);
    const std::uint64_t key = Random(epoch_key_, first_position_ + sample).next();
    Random random(key, part);
    for (float& factor : factors) factor = random.uniform() < options_.share ? 0.0f : kept;
  }

 private:
  /// Number of the first random stream, above those of initial values and permutations.
  static constexpr std::uint64_t kFirstStream = std::uint64_t{1} << 48;

  Options options_;
  bool is_active_ = false;
  std::uint64_t epoch_key_ = 0;
  std::uint64_t first_position_ = 0;
};

/// In training, sets random elements to zero and multiplies the others by 1 / (1 - share); see
/// DropoutMask. Outside training, y = x.
///
/// Shape:  x and y are [samples, width].
/// Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
///         JMLR 2014.
class Dropout final : public Layer {
 public:
  struct Options {
    std::size_t samples;
    std::size_t width;  ///< Elements per sample.
    DropoutMask::Options mask;
  };

  explicit Dropout(const Options& options)
      : width_(options.width),
        mask_(options.mask),
        factors_({options.mask.share > 0.0f ? options.samples : 0, options.width}),
        output_(factors_.shape()),
        input_gradient_(factors_.shape()) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override {
    if (!mask_.begin(pass)) return input;
    for (std::size_t i = 0; i < factors_.shape()[0]; ++i) {
      mask_.fill(i, 0, factors_.span().subspan(i * width_, width_));
    }
    multiply_elements(input, factors_.span(), output_.span());
    return output_.span();
  }
  std::span<const float> backward(std::span<const float> output_gradient) override {
    if (!mask_.is_active()) return output_gradient;
    multiply_elements(output_gradient, factors_.span(), input_gradient_.span());
    return input_gradient_.span();
  }

 private:
  std::size_t width_;
  DropoutMask mask_;
  Tensor factors_;  // empty if share is 0, like the tensors below
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
