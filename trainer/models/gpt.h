#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer/layers/layer.h"
#include "trainer/layers/tables.h"
#include "trainer/model_options.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

class Device;

/// A transformer over tokens: embedding, blocks, layer norm, and an output layer that by default
/// shares the embedding's token table.
///
/// Inputs: one tensor, int32 [context]. A row of the output holds the logits of the next token.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019,
///         also for initial weights and places of dropout.
class Gpt final : public Model {
 public:
  struct Options {
    std::size_t sequences;     ///< Sequences per batch.
    std::size_t context;       ///< Tokens per sequence.
    std::size_t tokens = 256;  ///< Size of the vocabulary.
    /// Learned positions are vectors added to the token's. With rotary positions each block has
    /// RotaryPositions, and the width of a head is even.
    ModelOptions model;
    /// For a single sequence computed in several passes; see SelfAttention::Options::chunk.
    std::optional<std::size_t> chunk = {};
    std::uint64_t seed;
  };

  static ModelEntry entry();
  /// Errors: KoloError(kConfig) for samples that are not windows of tokens, if heads do not divide
  ///         the width, or if heads have an odd width with rotary positions.
  static Options options(const ModelSetting& setting);

  /// `device` outlives the model.
  Gpt(Device& device, const Options& options);

  const Options& options() const { return options_; }

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  Embedding embedding_;
  Sequential layers_;
};

/// The layout of GPT-2's published weights, for a Gpt with learned positions: matrices of blocks
/// are [inputs, outputs], and a separate output table is present if it is not the embedding's.
///
/// Source: GPT2LMHeadModel in https://github.com/huggingface/transformers, whose files prefix names
///         with "transformer.", and the files of https://huggingface.co/openai-community/gpt2,
///         which do not.
WeightLayout gpt2_layout();

}  // namespace kolo::trainer
