#include "trainer/layers/attention/transformer_block.h"

#include "trainer/kernels/vector.h"

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

}  // namespace kolo::trainer
