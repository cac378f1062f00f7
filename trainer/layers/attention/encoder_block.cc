#include "trainer/layers/attention/encoder_block.h"

#include "trainer/kernels/vector.h"

namespace kolo::trainer {
namespace {

Linear::Options linear(const EncoderBlock::Options& o, std::size_t inputs, std::size_t outputs) {
  return {.rows = o.rows(),
          .inputs = inputs * o.width,
          .outputs = outputs * o.width,
          .deviation = o.deviation};
}

Dropout::Options dropout(const EncoderBlock::Options& o, std::uint64_t layer) {
  return {.samples = o.sequences,
          .width = o.length * o.width,
          .mask = {.share = o.dropout, .seed = o.seed, .layer = o.first_dropout + layer}};
}

}  // namespace

EncoderBlock::EncoderBlock(Device& device, ParameterSet& parameters, const std::string& name,
                           const Options& o)
    : query_key_value_(device, parameters, name + ".query_key_value", linear(o, 1, 3)),
      attention_(device, {.sequences = o.sequences,
                          .length = o.length,
                          .width = o.width,
                          .heads = o.heads,
                          .mask = SelfAttention::Mask::kLengths}),
      project_(device, parameters, name + ".project", linear(o, 1, 1)),
      attention_dropout_(dropout(o, 0)),
      attention_norm_(parameters, name + ".attention_norm", o.rows(), o.width),
      expand_(device, parameters, name + ".expand", linear(o, 1, 4)),
      gelu_(o.rows() * 4 * o.width),
      contract_(device, parameters, name + ".contract", linear(o, 4, 1)),
      inner_dropout_(dropout(o, 1)),
      inner_norm_(parameters, name + ".inner_norm", o.rows(), o.width),
      attended_({o.rows(), o.width}),
      output_({o.rows(), o.width}),
      attended_gradient_({o.rows(), o.width}),
      input_gradient_({o.rows(), o.width}) {}

std::span<const float> EncoderBlock::forward(std::span<const float> input, const Pass& pass) {
  const auto attended =
      project_.forward(attention_.forward(query_key_value_.forward(input, pass), pass), pass);
  add(input, attention_dropout_.forward(attended, pass), attended_.span());
  const auto h = attention_norm_.forward(attended_.span(), pass);
  const auto inner = contract_.forward(gelu_.forward(expand_.forward(h, pass), pass), pass);
  add(h, inner_dropout_.forward(inner, pass), output_.span());
  return inner_norm_.forward(output_.span(), pass);
}

std::span<const float> EncoderBlock::backward(std::span<const float> output_gradient) {
  const auto outer = inner_norm_.backward(output_gradient);
  const auto inner = contract_.backward(inner_dropout_.backward(outer));
  add(outer, expand_.backward(gelu_.backward(inner)), attended_gradient_.span());
  const auto sum = attention_norm_.backward(attended_gradient_.span());
  const auto attended = project_.backward(attention_dropout_.backward(sum));
  add(sum, query_key_value_.backward(attention_.backward(attended)), input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
