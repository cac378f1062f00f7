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

/// A transformer that predicts the next token: embedding, blocks, layer norm, and an output layer,
/// which by default shares the embedding's token table.
///
/// Inputs: one tensor, int32 [context]. Output row t holds the logits of token t + 1.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019;
///         initial weights and places of dropout are from there, too.
class Gpt final : public Model {
 public:
  struct Options {
    std::size_t sequences;     ///< Number of sequences per batch.
    std::size_t context;       ///< Number of tokens per sequence.
    std::size_t tokens = 256;  ///< Size of the vocabulary.
    /// Options of the model. Learned positions are vectors that are added to the tokens' vectors.
    /// Rotary positions need heads of an even width; see RotaryPositions.
    ModelOptions model;
    /// Set if a single sequence is computed in several passes; see SelfAttention::Options::chunk.
    std::optional<std::size_t> chunk = {};
    std::uint64_t seed;
    TensorRanks ranks = {};  ///< Ranks that divide heads, inner layers and tokens.
    Stage stage = {};        ///< The first stage has the embedding, the last the output layer.
    ParameterSet* parameters = nullptr;  ///< Set that models share; null: the model has its own.
  };

  static ModelEntry entry();
  /// The options that fit `setting`. Errors: KoloError(kConfig) if samples are not windows of
  /// tokens, heads do not divide the width, or positions are rotary and heads have an odd width.
  static Options options(const ModelSetting& setting);

  /// `device` outlives the model.
  Gpt(Device& device, const Options& options);

  const Options& options() const { return options_; }

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

  std::size_t stage_inputs() const override { return rows_ * options_.model.width; }
  std::span<const float> input_gradient() const override { return input_gradient_; }
  Parameter* shared_table() override;
  bool deals_out_outputs() const override { return options_.ranks.deal(); }

 private:
  void append_embedding();
  void append_blocks(Device& device);
  void append_output(Device& device);

  Options options_;
  std::size_t rows_;                        // largest number of rows of a pass
  std::optional<Embedding> embedding_;      // set in the first stage
  std::optional<ParameterSet> from_first_;  // copy of the token table, set in the last stage
  Sequential layers_;
  std::span<const float> input_gradient_;
};

/// The layout of GPT-2's published weights, for a Gpt with learned positions. Matrices of blocks
/// are [inputs, outputs]. Files have an output table only if it differs from the embedding's table.
///
/// Source: GPT2LMHeadModel in https://github.com/huggingface/transformers, whose files prefix names
///         with "transformer.", and the files of https://huggingface.co/openai-community/gpt2,
///         which do not.
WeightLayout gpt2_layout();

}  // namespace kolo::trainer
