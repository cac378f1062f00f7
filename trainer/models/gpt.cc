#include "trainer/models/gpt.h"

#include <cmath>
#include <string>

namespace kolo::trainer {

Gpt::Gpt(const Options& o) : Model(o.seed), options_(o) {
  constexpr float kDeviation = 0.02f;
  const std::size_t rows = o.sequences * o.context;
  embedding_ = std::make_unique<Embedding>(parameters(), "embedding",
                                           Embedding::Options{.sequences = o.sequences,
                                                              .length = o.context,
                                                              .width = o.width,
                                                              .deviation = kDeviation});
  const TransformerBlock::Options block{
      .attention = {.sequences = o.sequences,
                    .length = o.context,
                    .width = o.width,
                    .heads = o.heads},
      .deviation = kDeviation,
      .residual_deviation = kDeviation / std::sqrt(2.0f * static_cast<float>(o.layers))};
  for (std::size_t i = 0; i < o.layers; ++i) {
    blocks_.emplace_back(parameters(), "block" + std::to_string(i), block);
  }
  final_norm_ = std::make_unique<LayerNorm>(parameters(), "final_norm", rows, o.width);
  output_ = std::make_unique<Linear>(embedding_->token(), rows);
}

std::span<const float> Gpt::forward(std::span<const std::uint8_t> inputs) {
  std::span<const float> x = embedding_->forward(inputs);
  for (TransformerBlock& block : blocks_) x = block.forward(x);
  return output_->forward(final_norm_->forward(x));
}

void Gpt::backward(std::span<const float> logits_gradient) {
  std::span<const float> gradient = final_norm_->backward(output_->backward(logits_gradient));
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    gradient = block->backward(gradient);
  }
  embedding_->backward(gradient);
}

}  // namespace kolo::trainer
