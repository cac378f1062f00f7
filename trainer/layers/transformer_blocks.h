#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/layers/attention.h"
#include "trainer/layers/layer.h"

namespace kolo::trainer {

/// Standard deviation of the initial weights of a transformer, as in GPT-2 and BERT.
inline constexpr float kTransformerDeviation = 0.02f;

/// A pre-norm block: h = x + project(attend(norm(x))), y = h + contract(gelu(expand(norm(h)))).
/// Dropout applies to the attention weights and, before each sum, to the branch that is added.
///
/// Shape:  x and y are [sequences · length, width], or as few rows as the attention accepts. The
///         inner layer is 4 · width wide.
/// Source: the pre-norm block of Radford et al., "Language Models are Unsupervised Multitask
///         Learners" (GPT-2), 2019.
class TransformerBlock final : public Sequential {
 public:
  struct Options {
    /// Options of the attention; both branches have the same dropout, with the next two layer
    /// indices.
    SelfAttention::Options attention;
    float deviation;           ///< Standard deviation of initial weights.
    float residual_deviation;  ///< Standard deviation of the weights of `project` and `contract`.
    bool has_rotary_positions = false;
    /// Ranks that divide the heads and the inner layer. Their number is a divisor of heads.
    TensorRanks ranks = {};
  };

  /// Number of parameters that a block registers.
  static constexpr std::size_t kParameters = 12;
  /// Number of dropout layers of a block: one for attention weights and one per branch.
  static constexpr std::uint64_t kDropoutLayers = 3;

  /// `device` outlives the layer.
  TransformerBlock(Device& device, ParameterSet& parameters, const std::string& name,
                   const Options& options);
};

/// A post-norm block: h = norm(x + drop(project(attend(x)))), y = norm(h +
/// drop(contract(gelu(expand(h))))). Every position sees all positions of its sequence except
/// padding.
///
/// Shape:  x and y are [sequences · length, width]; the inner layer is 4 · width wide.
/// Source: the post-norm block of Devlin et al., "BERT", NAACL 2019, without attention dropout.
class EncoderBlock final : public Sequential {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    std::size_t heads;  ///< Number of heads, a divisor of width.
    float deviation;    ///< Standard deviation of initial weights.
    float dropout;      ///< Probability that an element is dropped, in [0, 1).
    std::uint64_t seed;
    std::uint64_t first_dropout;  ///< Index in the model of the first of two dropout layers.
  };

  /// `device` outlives the layer.
  EncoderBlock(Device& device, ParameterSet& parameters, const std::string& name,
               const Options& options);

  /// Sets the lengths of the sequences; see `SelfAttention::set_lengths`.
  void set_lengths(std::span<const std::int32_t> lengths) { attention_->set_lengths(lengths); }

 private:
  SelfAttention* attention_;  // one of the layers
};

}  // namespace kolo::trainer
