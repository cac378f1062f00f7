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
/// and a head, which takes some rows of the last block.
///
/// Inputs: "tokens", int32 [length], and "length", int32. With "chosen", int32 [chosen], the head
///         predicts the tokens at these places, by the table of the embedding; without, it gives
///         the text a class from its first row.
/// Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
///         Understanding", NAACL 2019; without its segments and its next-sentence task.
class Bert final : public Model {
 public:
  struct Options {
    std::size_t texts;   ///< Texts per batch.
    std::size_t length;  ///< Tokens of a text at most.
    std::size_t tokens;  ///< Size of the vocabulary.
    std::size_t chosen;  ///< Tokens of a text that are predicted; 0: the text gets a class.
    std::size_t classes;
    ModelOptions model;
    std::uint64_t seed;
  };

  static ModelEntry entry();
  /// Errors: KoloError(kConfig) for samples that are no texts with marks, and for a width that the
  ///         heads do not divide.
  static Options options(const ModelSetting& setting);

  /// `device` outlives the model.
  Bert(Device& device, const Options& options);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  Options options_;
  Embedding embedding_;
  Sequential layers_;
  std::vector<EncoderBlock*> blocks_;  // of the layers
  RowSelection* selection_;
};

}  // namespace kolo::trainer
