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

/// A transformer over tokens: embedding, blocks, layer norm, and an output layer that shares the
/// embedding's token table unless told otherwise.
///
/// Inputs: one tensor, int32 [context]. A row of the output holds the logits of the next token.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019;
///         initial weights and places of dropout as there.
class Gpt final : public Model {
 public:
  struct Options {
    std::size_t sequences;     ///< Sequences per batch.
    std::size_t context;       ///< Tokens per sequence.
    std::size_t tokens = 256;  ///< Size of the vocabulary.
    /// With learned positions a vector of each is added to the token's; with rotary ones each block
    /// has RotaryPositions, and heads are of even width.
    ModelOptions model;
    /// For passes that go on with one sequence: see SelfAttention::Options::chunk.
    std::optional<std::size_t> chunk = {};
    std::uint64_t seed;
  };

  static ModelEntry entry();
  /// Errors: KoloError(kConfig) for samples that are no windows of tokens, for a width that the
  ///         heads do not divide, or by an odd number with rotary positions.
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

/// That of the published weights of GPT-2, for a Gpt with learned positions: matrices of blocks are
/// [inputs, outputs], and the output table is there if it is not the embedding's.
///
/// Source: GPT2LMHeadModel in https://github.com/huggingface/transformers, whose files begin names
///         with "transformer.", and the files of https://huggingface.co/openai-community/gpt2,
///         which do not.
WeightLayout gpt2_layout();

}  // namespace kolo::trainer
