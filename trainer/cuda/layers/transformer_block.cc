#include "trainer/cuda/layers/transformer_block.h"

namespace kolo::trainer::cuda {
namespace {

std::size_t rows_of(const SelfAttention::Options& o) { return o.sequences * o.length; }

Linear make_linear(Context& context, DeviceParameters& parameters, const LinearParameters& names,
                   const Linear::Options& options) {
  return Linear(context, parameters, parameters.of(names.weight), &parameters.of(names.bias),
                options);
}

}  // namespace

BlockScratch::BlockScratch(Context& context, const SelfAttention::Options& options)
    : attention(context, options),
      packed(context.activations(3 * rows_of(options) * options.width)),
      wide(context.activations(4 * rows_of(options) * options.width)),
      narrow(context.activations(rows_of(options) * options.width)),
      middle(context.activations(rows_of(options) * options.width)) {}

TransformerBlock::TransformerBlock(Context& context, DeviceParameters& parameters,
                                   BlockScratch& scratch, const BlockParameters& names,
                                   const SelfAttention::Options& options)
    : TransformerBlock(context, parameters, scratch, names, options, rows_of(options),
                       options.width) {}

TransformerBlock::TransformerBlock(Context& context, DeviceParameters& parameters,
                                   BlockScratch& scratch, const BlockParameters& names,
                                   const SelfAttention::Options& options, std::size_t rows,
                                   std::size_t width)
    : scratch_(scratch),
      attention_norm_(context, parameters, names.attention_norm, rows, width),
      query_key_value_(make_linear(context, parameters, names.query_key_value,
                                   {.rows = rows, .inputs = width, .outputs = 3 * width})),
      attention_(context, scratch.attention, options),
      project_(make_linear(context, parameters, names.project,
                           {.rows = rows, .inputs = width, .outputs = width})),
      inner_norm_(context, parameters, names.inner_norm, rows, width),
      expand_(make_linear(
          context, parameters, names.expand,
          {.rows = rows, .inputs = width, .outputs = 4 * width, .activation = Activation::kGelu})),
      contract_(make_linear(context, parameters, names.contract,
                            {.rows = rows,
                             .inputs = 4 * width,
                             .outputs = width,
                             .activation = Activation::kNone,
                             .input_activation = Activation::kGelu})),
      attention_input_(context.activations(rows * width)),
      attended_(context.activations(rows * width)),
      middle_(context.activations(rows * width)),
      inner_input_(context.activations(rows * width)),
      expanded_(context.activations(rows * 4 * width)),
      inner_(context.activations(rows * 4 * width)),
      output_(context.activations(rows * width)) {}

const void* TransformerBlock::forward(const void* x) {
  x_ = x;
  attention_norm_.forward(x, attention_input_.data());
  query_key_value_.forward({.x = attention_input_.data(), .y = scratch_.packed.data()});
  attention_.forward(scratch_.packed.data(), attended_.data());
  project_.forward({.x = attended_.data(), .y = middle_.data(), .before = nullptr, .residual = x});
  inner_norm_.forward(middle_.data(), inner_input_.data());
  expand_.forward({.x = inner_input_.data(), .y = inner_.data(), .before = expanded_.data()});
  contract_.forward(
      {.x = inner_.data(), .y = output_.data(), .before = nullptr, .residual = middle_.data()});
  return output_.data();
}

void TransformerBlock::backward(void* gradient) {
  void* const packed = scratch_.packed.data();
  void* const wide = scratch_.wide.data();
  void* const narrow = scratch_.narrow.data();
  void* const middle = scratch_.middle.data();
  contract_.backward_parameters(inner_.data(), gradient);
  contract_.backward_input(gradient, wide, expanded_.data());
  expand_.backward_parameters(inner_input_.data(), wide);
  expand_.backward_input(wide, narrow);
  inner_norm_.backward({.dy = narrow, .x = middle_.data(), .residual = gradient, .dx = middle});
  project_.backward_parameters(attended_.data(), middle);
  project_.backward_input(middle, narrow);
  attention_.backward(narrow, packed);
  query_key_value_.backward_parameters(attention_input_.data(), packed);
  query_key_value_.backward_input(packed, narrow);
  attention_norm_.backward({.dy = narrow, .x = x_, .residual = middle, .dx = gradient});
}

}  // namespace kolo::trainer::cuda
