#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/layers/attention/self_attention.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"

namespace kolo::trainer {

/// h = norm(x + drop(project(attend(x)))), y = norm(h + drop(contract(gelu(expand(h))))): every
/// position sees the whole of its sequence, without the padding at the end.
///
/// Shape:  x and y are [sequences · length, width]; the inner layer is 4 · width wide.
/// Source: the post-norm block of Devlin et al., "BERT", NAACL 2019, without dropout of the weights
///         of attention.
class EncoderBlock final : public Layer {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    std::size_t heads;  ///< Divides width.
    float deviation;    ///< Deviation of initial weights.
    float dropout;      ///< Share; see Dropout.
    std::uint64_t seed;
    std::uint64_t first_dropout;  ///< Number of the first of two in the model.

    std::size_t rows() const { return sequences * length; }
  };

  /// `device` outlives the layer.
  EncoderBlock(Device& device, ParameterSet& parameters, const std::string& name,
               const Options& options);

  /// As `SelfAttention::set_lengths`.
  void set_lengths(std::span<const std::int32_t> lengths) { attention_.set_lengths(lengths); }

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Linear query_key_value_;
  SelfAttention attention_;
  Linear project_;
  Dropout attention_dropout_;
  LayerNorm attention_norm_;
  Linear expand_;
  Gelu gelu_;
  Linear contract_;
  Dropout inner_dropout_;
  LayerNorm inner_norm_;
  Tensor attended_;           // before its norm
  Tensor output_;             // before its norm
  Tensor attended_gradient_;  // of h
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
