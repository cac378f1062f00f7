#include "trainer/layers/transformer_block.h"

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

TransformerBlock::TransformerBlock(Device& device, ParameterSet& parameters,
                                   const std::string& name, const Options& options)
    : TransformerBlock(device, parameters, name, options,
                       options.attention.sequences * options.attention.length,
                       options.attention.width) {}

TransformerBlock::TransformerBlock(Device& device, ParameterSet& parameters,
                                   const std::string& name, const Options& options,
                                   std::size_t rows, std::size_t width)
    : attention_norm_(parameters, name + ".attention_norm", rows, width),
      query_key_value_(
          device, parameters, name + ".query_key_value",
          {.rows = rows, .inputs = width, .outputs = 3 * width, .deviation = options.deviation}),
      attention_(device, options.attention),
      project_(device, parameters, name + ".project",
               {.rows = rows,
                .inputs = width,
                .outputs = width,
                .deviation = options.residual_deviation}),
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
      middle_({rows, width}),
      output_({rows, width}),
      middle_gradient_({rows, width}),
      input_gradient_({rows, width}) {}

std::span<const float> TransformerBlock::forward(std::span<const float> input, const Pass& pass) {
  const auto attended = attention_.forward(
      query_key_value_.forward(attention_norm_.forward(input, pass), pass), pass);
  add(input, project_.forward(attended, pass), middle_.span());
  const auto expanded = expand_.forward(inner_norm_.forward(middle_.span(), pass), pass);
  add(middle_.span(), contract_.forward(gelu_.forward(expanded, pass), pass), output_.span());
  return output_.span();
}

std::span<const float> TransformerBlock::backward(std::span<const float> output_gradient) {
  const auto inner = expand_.backward(gelu_.backward(contract_.backward(output_gradient)));
  add(output_gradient, inner_norm_.backward(inner), middle_gradient_.span());
  const auto attended = attention_.backward(project_.backward(middle_gradient_.span()));
  add(middle_gradient_.span(), attention_norm_.backward(query_key_value_.backward(attended)),
      input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
