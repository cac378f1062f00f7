#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/layers/attention.h"
#include "trainer/layers/layer.h"

namespace kolo::trainer {

/// Deviation of the initial weights of a transformer, as in GPT-2 and BERT.
inline constexpr float kTransformerDeviation = 0.02f;

/// h = x + project(attend(norm(x))), y = h + contract(gelu(expand(norm(h)))), with dropout of the
/// attention weights and of both branches before they are added.
///
/// Shape:  x and y are [sequences · length, width], or as few rows as the attention accepts; the
///         inner layer is 4 · width wide.
/// Source: the pre-norm block of Radford et al., "Language Models are Unsupervised Multitask
///         Learners" (GPT-2), 2019.
class TransformerBlock final : public Sequential {
 public:
  struct Options {
    /// Its dropout also applies to both branches, as the two dropout layers after its own.
    SelfAttention::Options attention;
    float deviation;           ///< Deviation of initial weights.
    float residual_deviation;  ///< Deviation of the two projections that add to the residual path.
    bool has_rotary_positions = false;
  };

  /// Dropout layers of a block: attention weights and both branches.
  static constexpr std::uint64_t kDropoutLayers = 3;

  /// `device` outlives the layer.
  TransformerBlock(Device& device, ParameterSet& parameters, const std::string& name,
                   const Options& options);
};

/// h = norm(x + drop(project(attend(x)))), y = norm(h + drop(contract(gelu(expand(h))))). Every
/// position sees its whole sequence, except the padding at the end.
///
/// Shape:  x and y are [sequences · length, width]; the inner layer is 4 · width wide.
/// Source: the post-norm block of Devlin et al., "BERT", NAACL 2019, without dropout of the weights
///         of attention.
class EncoderBlock final : public Sequential {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    std::size_t heads;  ///< Divides width.
    float deviation;    ///< Deviation of initial weights.
    float dropout;      ///< Share; see Dropout.
    std::uint64_t seed;
    std::uint64_t first_dropout;  ///< Index of the first of its two dropout layers in the model.
  };

  /// `device` outlives the layer.
  EncoderBlock(Device& device, ParameterSet& parameters, const std::string& name,
               const Options& options);

  /// See `SelfAttention::set_lengths`.
  void set_lengths(std::span<const std::int32_t> lengths) { attention_->set_lengths(lengths); }

 private:
  SelfAttention* attention_;  // one of the layers
};

}  // namespace kolo::trainer
