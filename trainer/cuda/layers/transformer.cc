#include "trainer/cuda/layers/transformer.h"

#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/layer_norm.h"

namespace kolo::trainer::cuda {
namespace {

std::size_t rows_of(const SelfAttention::Options& o) { return o.sequences * o.length; }

}  // namespace

LayerNorm::LayerNorm(Context& context, DeviceParameters& parameters, const std::string& name,
                     std::size_t rows, std::size_t width)
    : context_(context),
      parameters_(parameters),
      gain_(parameters.of(name + ".gain")),
      bias_(parameters.of(name + ".bias")),
      rows_(rows),
      width_(width),
      mean_(context.floats(rows)),
      rstd_(context.floats(rows)) {
  context.reserve_scratch(plan_layer_norm(rows, width).partials);
}

void LayerNorm::forward(const void* x, void* y) {
  layer_norm(context_.stream(), {.dtype = context_.dtype(),
                                 .rows = rows_,
                                 .width = width_,
                                 .x = x,
                                 .gain = gain_.value,
                                 .bias = bias_.value,
                                 .y = y,
                                 .mean = floats_of(mean_),
                                 .rstd = floats_of(rstd_)});
}

void LayerNorm::backward(const Backward& step) {
  layer_norm_backward(context_.stream(), {.dtype = context_.dtype(),
                                          .rows = rows_,
                                          .width = width_,
                                          .dy = step.dy,
                                          .x = step.x,
                                          .gain = gain_.value,
                                          .mean = floats_of(mean_),
                                          .rstd = floats_of(rstd_),
                                          .residual = step.residual,
                                          .dx = step.dx,
                                          .partials = context_.scratch(),
                                          .mode = parameters_.mode(),
                                          .dgain = gain_.gradient,
                                          .dbias = bias_.gradient});
  parameters_.ready(gain_);
  parameters_.ready(bias_);
}

Embedding::Embedding(Context& context, DeviceParameters& parameters, DeviceParameter& token,
                     DeviceParameter& position, const Options& options)
    : context_(context),
      parameters_(parameters),
      token_(token),
      position_(position),
      options_(options) {
  const std::size_t rows = options.sequences * options.length;
  context.reserve_scratch(token_slices(rows) * 2 * options.width);
}

void Embedding::forward(const std::int32_t* tokens, void* y) {
  embed(context_.stream(), {.dtype = context_.dtype(),
                            .rows = options_.sequences * options_.length,
                            .length = options_.length,
                            .width = options_.width,
                            .tokens = tokens,
                            .token = token_.value,
                            .position = position_.value,
                            .y = y});
}

void Embedding::backward(const std::int32_t* tokens, const std::int32_t* order, const void* dy) {
  embed_backward(context_.stream(), {.dtype = context_.dtype(),
                                     .rows = options_.sequences * options_.length,
                                     .length = options_.length,
                                     .width = options_.width,
                                     .tokens = tokens,
                                     .order = order,
                                     .dy = dy,
                                     .partials = context_.scratch(),
                                     .dtoken = token_.gradient,
                                     .position_mode = parameters_.mode(),
                                     .dposition = position_.gradient});
  parameters_.ready(position_);
  parameters_.ready(token_);
}

BlockScratch::BlockScratch(Context& context, const SelfAttention::Options& options,
                           AttentionMode mode)
    : attention(context, options, mode),
      wide(context.activations(4 * rows_of(options) * options.width)),
      narrow(context.activations(rows_of(options) * options.width)),
      middle(context.activations(rows_of(options) * options.width)) {}

TransformerBlock::TransformerBlock(Context& context, DeviceParameters& parameters,
                                   BlockScratch& scratch, const std::string& name,
                                   const SelfAttention::Options& options)
    : TransformerBlock(context, parameters, scratch, name, options, rows_of(options),
                       options.width) {}

TransformerBlock::TransformerBlock(Context& context, DeviceParameters& parameters,
                                   BlockScratch& scratch, const std::string& name,
                                   const SelfAttention::Options& options, std::size_t rows,
                                   std::size_t width)
    : scratch_(scratch),
      attention_norm_(context, parameters, name + ".attention_norm", rows, width),
      query_key_value_(context, parameters, name + ".query_key_value",
                       {.rows = rows, .inputs = width, .outputs = 3 * width}),
      attention_(context, scratch.attention, options),
      project_(context, parameters, name + ".project",
               {.rows = rows, .inputs = width, .outputs = width}),
      inner_norm_(context, parameters, name + ".inner_norm", rows, width),
      expand_(
          context, parameters, name + ".expand",
          {.rows = rows, .inputs = width, .outputs = 4 * width, .activation = Activation::kGelu}),
      contract_(context, parameters, name + ".contract",
                {.rows = rows,
                 .inputs = 4 * width,
                 .outputs = width,
                 .activation = Activation::kNone,
                 .input_activation = Activation::kGelu}),
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
  query_key_value_.forward({.x = attention_input_.data(), .y = attention_.inputs()});
  attention_.forward(attended_.data());
  project_.forward({.x = attended_.data(), .y = middle_.data(), .before = nullptr, .residual = x});
  inner_norm_.forward(middle_.data(), inner_input_.data());
  expand_.forward({.x = inner_input_.data(), .y = inner_.data(), .before = expanded_.data()});
  contract_.forward(
      {.x = inner_.data(), .y = output_.data(), .before = nullptr, .residual = middle_.data()});
  return output_.data();
}

void TransformerBlock::backward(void* gradient) {
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
  const void* const packed = attention_.backward(attended_.data(), narrow);
  query_key_value_.backward_parameters(attention_input_.data(), packed);
  query_key_value_.backward_input(packed, narrow);
  attention_norm_.backward({.dy = narrow, .x = x_, .residual = middle, .dx = gradient});
}

}  // namespace kolo::trainer::cuda
