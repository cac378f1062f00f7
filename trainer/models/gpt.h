#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "trainer/layers/embedding.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/transformer_block.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

/// A byte-level transformer: embedding, blocks, layer norm, and an output layer that shares the
/// embedding's token table.
///
/// The gradient of the table has two parts, which the first and the last layer of a backward pass
/// compute. It is reported ready after the second.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019;
///         initial weights as there.
class Gpt final : public Model {
 public:
  struct Options {
    std::size_t sequences;  ///< Sequences per batch.
    std::size_t context;    ///< Bytes per sequence.
    std::size_t layers;
    std::size_t width;
    std::size_t heads;  ///< Divides width.
    std::uint64_t seed;
  };

  explicit Gpt(const Options& options);

  const Options& options() const { return options_; }

  std::span<const float> forward(std::span<const std::uint8_t> inputs) override;
  void backward(std::span<const float> logits_gradient) override;

 private:
  Options options_;
  std::unique_ptr<Embedding> embedding_;
  std::deque<TransformerBlock> blocks_;
  std::unique_ptr<LayerNorm> final_norm_;
  std::unique_ptr<Linear> output_;
};

}  // namespace kolo::trainer
