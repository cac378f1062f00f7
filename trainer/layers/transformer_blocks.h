#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/layers/attention.h"
#include "trainer/layers/layer.h"

namespace kolo::trainer {

/// Deviation of the initial weights of a transformer, from the source of both models.
inline constexpr float kTransformerDeviation = 0.02f;

/// h = x + project(attend(norm(x))), y = h + contract(gelu(expand(norm(h)))), with dropout of the
/// attention's weights and of what is added to x and h.
///
/// Shape:  x and y are [sequences · length, width], or as few rows as the attention takes; the
///         inner layer is 4 · width wide.
/// Source: the pre-norm block of Radford et al., "Language Models are Unsupervised Multitask
///         Learners" (GPT-2), 2019.
class TransformerBlock final : public Sequential {
 public:
  struct Options {
    /// Its dropout is also that of what is added to x and h, whose layers count on from its own.
    SelfAttention::Options attention;
    float deviation;           ///< Deviation of initial weights.
    float residual_deviation;  ///< The same for the two projections that add to the residual path.
    bool has_rotary_positions = false;
  };

  /// With that of the attention's weights.
  static constexpr std::uint64_t kDropoutLayers = 3;

  /// `device` outlives the layer.
  TransformerBlock(Device& device, ParameterSet& parameters, const std::string& name,
                   const Options& options);
};

/// h = norm(x + drop(project(attend(x)))), y = norm(h + drop(contract(gelu(expand(h))))): every
/// position sees the whole of its sequence, without the padding at the end.
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
    std::uint64_t first_dropout;  ///< Number of the first of two in the model.
  };

  /// `device` outlives the layer.
  EncoderBlock(Device& device, ParameterSet& parameters, const std::string& name,
               const Options& options);

  /// As `SelfAttention::set_lengths`.
  void set_lengths(std::span<const std::int32_t> lengths) { attention_->set_lengths(lengths); }

 private:
  SelfAttention* attention_;  // one of the layers
};

}  // namespace kolo::trainer
