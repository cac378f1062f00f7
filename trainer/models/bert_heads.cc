#include "trainer/models/bert_heads.h"

namespace kolo::trainer {

MaskedTokenHead::MaskedTokenHead(Device& device, ParameterSet& parameters, Parameter& table,
                                 const Options& o)
    : dense_(device, parameters, "masked.dense",
             {.rows = o.rows,
              .inputs = table.shape()[1],
              .outputs = table.shape()[1],
              .deviation = o.deviation}),
      gelu_(o.rows * table.shape()[1]),
      norm_(parameters, "masked.norm", o.rows, table.shape()[1]),
      output_(device, parameters, "masked.output", table, o.rows) {}

std::span<const float> MaskedTokenHead::forward(std::span<const float> input, const Pass& pass) {
  const auto dense = gelu_.forward(dense_.forward(input, pass), pass);
  return output_.forward(norm_.forward(dense, pass), pass);
}

std::span<const float> MaskedTokenHead::backward(std::span<const float> output_gradient) {
  return dense_.backward(gelu_.backward(norm_.backward(output_.backward(output_gradient))));
}

TextClassHead::TextClassHead(Device& device, ParameterSet& parameters, const Options& o)
    : pooler_(device, parameters, "pooler",
              {.rows = o.texts, .inputs = o.width, .outputs = o.width, .deviation = o.deviation}),
      tanh_(o.texts * o.width),
      dropout_({.samples = o.texts,
                .width = o.width,
                .mask = {.share = o.dropout, .seed = o.seed, .layer = o.dropout_layer}}),
      classifier_(
          device, parameters, "classifier",
          {.rows = o.texts, .inputs = o.width, .outputs = o.classes, .deviation = o.deviation}) {}

std::span<const float> TextClassHead::forward(std::span<const float> input, const Pass& pass) {
  const auto pooled = tanh_.forward(pooler_.forward(input, pass), pass);
  return classifier_.forward(dropout_.forward(pooled, pass), pass);
}

std::span<const float> TextClassHead::backward(std::span<const float> output_gradient) {
  return pooler_.backward(tanh_.backward(dropout_.backward(classifier_.backward(output_gradient))));
}

}  // namespace kolo::trainer
