#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/tables.h"
#include "trainer/layers/transformer_blocks.h"
#include "trainer/model_options.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

class Device;

/// A transformer that reads a text in both directions: embedding of tokens and positions, blocks,
/// and a head on some rows of the last block.
///
/// Inputs: "tokens", int32 [length], and "length", int32. With "chosen", int32 [chosen], the head
///         predicts the tokens at these positions, with the embedding's table as output layer.
///         Without it, the head classifies the text by its first row.
/// Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
///         Understanding", NAACL 2019; without its segments and its next-sentence task.
class Bert final : public Model {
 public:
  struct Options {
    std::size_t texts;   ///< Texts per batch.
    std::size_t length;  ///< Most tokens per text.
    std::size_t tokens;  ///< Size of the vocabulary.
    std::size_t chosen;  ///< Predicted tokens per text; 0: the text is classified.
    std::size_t classes;
    ModelOptions model;
    std::uint64_t seed;
  };

  static ModelEntry entry();
  /// Errors: KoloError(kConfig) for samples that are not texts with marks, and if heads do not
  ///         divide the width.
  static Options options(const ModelSetting& setting);

  /// `device` outlives the model.
  Bert(Device& device, const Options& options);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  Embedding embedding_;
  Sequential layers_;
  std::vector<EncoderBlock*> blocks_;  // these are among the layers
  RowSelection* selection_;
};

}  // namespace kolo::trainer
