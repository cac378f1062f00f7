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

/// A transformer that reads a text in both directions: embedding of tokens and positions, encoder
/// blocks, and a head that reads some rows of the last block.
///
/// Inputs: "tokens", int32 [length], and "length", int32. With a third input "chosen", int32
///         [chosen], the head predicts the tokens at these positions; its output layer uses the
///         embedding's table. Without it, the head classifies the text from its first row.
/// Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
///         Understanding", NAACL 2019; without segments and the next-sentence task.
class Bert final : public Model {
 public:
  struct Options {
    std::size_t texts;   ///< Number of texts per batch.
    std::size_t length;  ///< Number of token positions per text, including padding.
    std::size_t tokens;  ///< Size of the vocabulary.
    std::size_t chosen;  ///< Number of predicted tokens per text; 0 if the text is classified.
    std::size_t classes;
    ModelOptions model;
    std::uint64_t seed;
  };

  static ModelEntry entry();
  /// The options that fit `setting`. Errors: KoloError(kConfig) if samples are not texts with
  /// marks, or if the width is not a multiple of the number of heads.
  static Options options(const ModelSetting& setting);

  /// `device` outlives the model.
  Bert(Device& device, const Options& options);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  Embedding embedding_;
  Sequential layers_;
  std::vector<EncoderBlock*> blocks_;  // the encoder blocks among `layers_`
  RowSelection* selection_;
};

}  // namespace kolo::trainer
