#include "trainer/layers/transformer_blocks.h"

#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

/// Dropout `number` after that of the attention's weights.
Dropout::Options dropout_after(const SelfAttention::Options& attention, std::uint64_t number) {
  Dropout::Options options{.samples = attention.sequences,
                           .width = attention.length * attention.width,
                           .mask = attention.dropout};
  options.mask.layer += number;
  return options;
}

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

TransformerBlock::TransformerBlock(Device& device, ParameterSet& parameters,
                                   const std::string& name, const Options& options)
    : TransformerBlock(device, parameters, name, options, options.attention.rows(),
                       options.attention.width) {}

TransformerBlock::TransformerBlock(Device& device, ParameterSet& parameters,
                                   const std::string& name, const Options& options,
                                   std::size_t rows, std::size_t width)
    : attention_norm_(parameters, name + ".attention_norm", rows, width),
      query_key_value_(
          device, parameters, name + ".query_key_value",
          {.rows = rows, .inputs = width, .outputs = 3 * width, .deviation = options.deviation}),
      rotary_(options.has_rotary_positions ? std::make_optional<RotaryPositions>(options.attention)
                                           : std::nullopt),
      attention_(device, options.attention),
      project_(device, parameters, name + ".project",
               {.rows = rows,
                .inputs = width,
                .outputs = width,
                .deviation = options.residual_deviation}),
      project_dropout_(dropout_after(options.attention, 1)),
      inner_norm_(parameters, name + ".inner_norm", rows, width),
      expand_(
          device, parameters, name + ".expand",
          {.rows = rows, .inputs = width, .outputs = 4 * width, .deviation = options.deviation}),
      gelu_(rows * 4 * width),
      contract_(device, parameters, name + ".contract",
                {.rows = rows,
                 .inputs = 4 * width,
                 .outputs = width,
                 .deviation = options.residual_deviation}),
      contract_dropout_(dropout_after(options.attention, 2)),
      middle_({rows, width}),
      output_({rows, width}),
      middle_gradient_({rows, width}),
      input_gradient_({rows, width}) {}

std::span<const float> TransformerBlock::forward(std::span<const float> input, const Pass& pass) {
  auto packed = query_key_value_.forward(attention_norm_.forward(input, pass), pass);
  if (rotary_) packed = rotary_->forward(packed, pass);
  const auto attended = project_.forward(attention_.forward(packed, pass), pass);
  const std::span<float> middle = middle_.span().first(input.size());
  add(input, project_dropout_.forward(attended, pass), middle);
  const auto expanded = expand_.forward(inner_norm_.forward(middle, pass), pass);
  const auto contracted = contract_.forward(gelu_.forward(expanded, pass), pass);
  const std::span<float> output = output_.span().first(input.size());
  add(middle, contract_dropout_.forward(contracted, pass), output);
  return output;
}

std::span<const float> TransformerBlock::backward(std::span<const float> output_gradient) {
  const auto contracted = contract_dropout_.backward(output_gradient);
  const auto inner = expand_.backward(gelu_.backward(contract_.backward(contracted)));
  add(output_gradient, inner_norm_.backward(inner), middle_gradient_.span());
  const auto attended = project_dropout_.backward(middle_gradient_.span());
  auto packed = attention_.backward(project_.backward(attended));
  if (rotary_) packed = rotary_->backward(packed);
  add(middle_gradient_.span(), attention_norm_.backward(query_key_value_.backward(packed)),
      input_gradient_.span());
  return input_gradient_.span();
}

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
