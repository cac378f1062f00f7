#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"
#include "trainer/layers/tables.h"
#include "trainer/layers/transformer_blocks.h"
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
  /// How the model knows where a token stands: by a vector of each position, which is added to the
  /// token's, or by RotaryPositions in each block.
  enum class Positions : std::uint8_t { kLearned, kRotary };

  struct Options {
    std::size_t sequences;     ///< Sequences per batch.
    std::size_t context;       ///< Tokens per sequence.
    std::size_t tokens = 256;  ///< Size of the vocabulary.
    std::size_t layers;
    std::size_t width;
    std::size_t heads;  ///< Divides width; with rotary positions by an even number.
    Positions positions = Positions::kLearned;
    bool is_tied = true;   ///< The output layer multiplies by the embedding's token table.
    float dropout = 0.0f;  ///< Share of each dropout; see DropoutMask.
    /// For passes that go on with one sequence: see SelfAttention::Options::chunk.
    std::optional<std::size_t> chunk = {};
    std::uint64_t seed;
  };

  static ModelEntry entry();
  /// Errors: KoloError(kConfig) for samples that are no windows of tokens, for a width that the
  /// heads
  ///         do not divide, or by an odd number with rotary positions.
  static Options options(const ModelSetting& setting);

  /// `device` outlives the model.
  Gpt(Device& device, const Options& options);

  const Options& options() const { return options_; }

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  std::unique_ptr<Embedding> embedding_;
  Dropout embedding_dropout_;
  std::deque<TransformerBlock> blocks_;
  std::unique_ptr<LayerNorm> final_norm_;
  std::unique_ptr<Linear> output_;
};

/// That of the published weights of GPT-2, for a Gpt with learned positions: matrices of blocks are
/// [inputs, outputs], and the output table is there if it is not the embedding's.
///
/// Source: GPT2LMHeadModel in https://github.com/huggingface/transformers, whose files begin names
///         with "transformer.", and the files of https://huggingface.co/openai-community/gpt2,
///         which do not.
WeightLayout gpt2_layout();

}  // namespace kolo::trainer
