#pragma once

#include <cstddef>
#include <string>

#include "trainer/layers/gelu.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/self_attention.h"

namespace kolo::trainer {

/// h = x + project(attend(norm(x))), y = h + contract(gelu(expand(norm(h)))).
///
/// Shape:  x and y are [sequences · length, width]; the inner layer is 4 · width wide.
/// Source: the pre-norm block of Radford et al., "Language Models are Unsupervised Multitask
///         Learners" (GPT-2), 2019.
class TransformerBlock final : public Layer {
 public:
  struct Options {
    SelfAttention::Options attention;
    float deviation;           ///< Deviation of initial weights.
    float residual_deviation;  ///< The same for the two projections that add to the residual path.
  };

  /// `device` outlives the layer.
  TransformerBlock(Device& device, ParameterSet& parameters, const std::string& name,
                   const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  TransformerBlock(Device& device, ParameterSet& parameters, const std::string& name,
                   const Options& options, std::size_t rows, std::size_t width);

  LayerNorm attention_norm_;
  Linear query_key_value_;
  SelfAttention attention_;
  Linear project_;
  LayerNorm inner_norm_;
  Linear expand_;
  Gelu gelu_;
  Linear contract_;
  Tensor middle_;  // h
  Tensor output_;
  Tensor middle_gradient_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
