#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Adds up values over the ranks that divide a model, in one direction: in the forward pass, the
/// outputs of a layer that is divided by inputs; or in the backward pass, the input gradients of a
/// layer that is divided by outputs. In the other direction, values pass unchanged. A pair of
/// layers that are divided by outputs and by inputs thus needs one sum per direction:
///
///     x → [gradients] → by outputs → f → by inputs → [outputs] → y
///
/// Shape:  input and output have the same number of elements, at most `elements`.
/// Source: Shoeybi et al., "Megatron-LM", 2019.
class TensorSum final : public Layer {
 public:
  enum class Of { kOutputs, kGradients };

  /// `name` is unique to the layer.
  TensorSum(const TensorRanks& ranks, std::string name, Of of, std::size_t elements)
      : ranks_(ranks), name_(std::move(name)), of_(of), sums_({elements}) {}

  std::span<const float> forward(std::span<const float> input, const Pass&) override {
    return of_ == Of::kOutputs ? sum(input) : input;
  }
  std::span<const float> backward(std::span<const float> output_gradient) override {
    return of_ == Of::kGradients ? sum(output_gradient) : output_gradient;
  }

 private:
  std::span<const float> sum(std::span<const float> parts) {
    const std::span<float> sums = sums_.span().first(parts.size());
    std::ranges::copy(parts, sums.begin());
    ranks_.sum(name_, sums);
    return sums;
  }

  TensorRanks ranks_;
  std::string name_;
  Of of_;
  Tensor sums_;
};

}  // namespace kolo::trainer
