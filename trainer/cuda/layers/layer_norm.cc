#include "trainer/cuda/layers/layer_norm.h"

#include "trainer/cuda/kernels/layer_norm.h"

namespace kolo::trainer::cuda {

LayerNorm::LayerNorm(Context& context, DeviceParameters& parameters,
                     const LayerNormParameters& names, std::size_t rows, std::size_t width)
    : context_(context),
      parameters_(parameters),
      gain_(parameters.of(names.gain)),
      bias_(parameters.of(names.bias)),
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
                                          .dgain = gain_.gradient,
                                          .dbias = bias_.gradient});
  parameters_.ready(gain_);
  parameters_.ready(bias_);
}

}  // namespace kolo::trainer::cuda
