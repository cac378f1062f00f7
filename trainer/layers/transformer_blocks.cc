#include "trainer/layers/transformer_blocks.h"

#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"

namespace kolo::trainer {
namespace {

/// Arguments that the layers of a block share.
struct Block {
  Device& device;
  ParameterSet& parameters;
  const std::string& name;
  std::size_t rows;
  std::size_t width;
  TensorRanks ranks = {};

  /// Appends a dense layer; `inputs` and `outputs` count multiples of the width.
  void append_linear(Sequential& to, const char* layer, std::size_t inputs, std::size_t outputs,
                     float deviation, const Part& part) const {
    to.append<Linear>(device, parameters, name + layer,
                      Linear::Options{.rows = rows,
                                      .inputs = inputs * width,
                                      .outputs = outputs * width,
                                      .deviation = deviation,
                                      .part = part,
                                      .ranks = ranks});
  }
  void append_norm(Sequential& to, const char* layer) const {
    to.append<LayerNorm>(parameters, name + layer, rows, width);
  }
  /// Appends layers that compute contract(gelu(expand(x))).
  void append_inner_layer(Sequential& to, float deviation, float contract_deviation) const {
    append_linear(to, ".expand", 1, 4, deviation, ranks.outputs());
    to.append<Gelu>(rows * 4 * width / ranks.ways);
    append_linear(to, ".contract", 4, 1, contract_deviation, ranks.inputs());
  }
  /// Appends a layer that computes x + y(x), and returns y, to which layers can be appended.
  Sequential& append_sum(Sequential& to) const {
    return to.append<Residual>(rows * width, rows * width).main();
  }
};

/// The options of a dropout layer whose index is that of attention weights plus `number`.
Dropout::Options dropout_after(const SelfAttention::Options& attention, std::uint64_t number) {
  Dropout::Options options{.samples = attention.sequences,
                           .width = attention.length * attention.width,
                           .mask = attention.dropout};
  options.mask.layer += number;
  return options;
}

Dropout::Options dropout(const EncoderBlock::Options& o, std::uint64_t layer) {
  return {.samples = o.sequences,
          .width = o.length * o.width,
          .mask = {.share = o.dropout, .seed = o.seed, .layer = o.first_dropout + layer}};
}

}  // namespace

TransformerBlock::TransformerBlock(Device& device, ParameterSet& parameters,
                                   const std::string& name, const Options& o) {
  const Block block{device, parameters, name, o.attention.rows(), o.attention.width, o.ranks};
  SelfAttention::Options own = o.attention;
  own.width /= o.ranks.ways;
  own.heads /= o.ranks.ways;
  own.first_head = o.ranks.index * own.heads;
  Sequential& attended = block.append_sum(*this);
  block.append_norm(attended, ".attention_norm");
  block.append_linear(attended, ".query_key_value", 1, 3, o.deviation, o.ranks.outputs(3));
  if (o.has_rotary_positions) attended.append<RotaryPositions>(own);
  attended.append<SelfAttention>(device, own);
  block.append_linear(attended, ".project", 1, 1, o.residual_deviation, o.ranks.inputs());
  attended.append<Dropout>(dropout_after(o.attention, 1));
  Sequential& inner = block.append_sum(*this);
  block.append_norm(inner, ".inner_norm");
  block.append_inner_layer(inner, o.deviation, o.residual_deviation);
  inner.append<Dropout>(dropout_after(o.attention, 2));
}

EncoderBlock::EncoderBlock(Device& device, ParameterSet& parameters, const std::string& name,
                           const Options& o) {
  const Block block{device, parameters, name, o.sequences * o.length, o.width};
  Sequential& attended = block.append_sum(*this);
  block.append_linear(attended, ".query_key_value", 1, 3, o.deviation, {});
  attention_ = &attended.append<SelfAttention>(
      device, SelfAttention::Options{.sequences = o.sequences,
                                     .length = o.length,
                                     .width = o.width,
                                     .heads = o.heads,
                                     .mask = SelfAttention::Mask::kLengths});
  block.append_linear(attended, ".project", 1, 1, o.deviation, {});
  attended.append<Dropout>(dropout(o, 0));
  block.append_norm(*this, ".attention_norm");
  Sequential& inner = block.append_sum(*this);
  block.append_inner_layer(inner, o.deviation, o.deviation);
  inner.append<Dropout>(dropout(o, 1));
  block.append_norm(*this, ".inner_norm");
}

}  // namespace kolo::trainer
