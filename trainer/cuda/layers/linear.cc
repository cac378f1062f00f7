#include "trainer/cuda/layers/linear.h"

#include "comm/base/check.h"
#include "trainer/cuda/kernels/column_sums.h"

namespace kolo::trainer::cuda {
namespace {

Epilogue forward_epilogue(Activation activation) {
  if (activation == Activation::kRelu) return Epilogue::kBiasRelu;
  if (activation == Activation::kGelu) return Epilogue::kBiasGelu;
  return Epilogue::kBias;
}

}  // namespace

Linear::Linear(Context& context, DeviceParameters& parameters, DeviceParameter& weight,
               DeviceParameter* bias, const Options& options)
    : context_(context),
      parameters_(parameters),
      weight_(weight),
      bias_(bias),
      options_(options),
      result_(options.is_float32_result ? DType::kFloat32 : context.dtype()) {
  check(bias != nullptr || options.activation == Activation::kNone,
        "a linear layer without bias has no activation");
  check(bias == nullptr || options.output_stride == 0, "a layer with bias has adjacent rows");
  const bool has_bias = bias != nullptr;
  forward_ = plan(forward_shape(has_bias ? forward_epilogue(options.activation) : Epilogue::kNone),
                  forward_shape(Epilogue::kNone));
  for_parameters_ =
      plan(parameter_shape(has_bias ? Epilogue::kBiasGradient : Epilogue::kNone, DType::kFloat32),
           parameter_shape(Epilogue::kNone, DType::kFloat32));
  if (has_bias && context.dtype() == DType::kBFloat16) {
    for_rounded_ = context.blas.find(parameter_shape(Epilogue::kBiasGradient, DType::kBFloat16));
    weight.is_one_product = bias->is_one_product = for_rounded_ != nullptr;
  }
  const bool is_gelu = options.input_activation == Activation::kGelu;
  for_input_ = plan(input_shape(is_gelu ? Epilogue::kGeluGradient : Epilogue::kNone),
                    input_shape(Epilogue::kNone));
  if (has_bias) context.reserve_scratch(column_sum_parts(options.rows) * options.outputs);
}

Linear::Product Linear::plan(const MatmulShape& fused, const MatmulShape& plain) {
  // cuBLAS does not specify the precision of its tanh, so float32 uses the trainer's own GELU.
  const bool is_gelu =
      fused.epilogue == Epilogue::kBiasGelu || fused.epilogue == Epilogue::kGeluGradient;
  const bool may_fuse = !is_gelu || is_16bit_float(fused.operand);
  const Blas::Plan* const found = may_fuse ? context_.blas.find(fused) : nullptr;
  if (found != nullptr) return {.plan = found, .is_fused = true};
  return {.plan = &context_.blas.get(plain), .is_fused = false};
}

MatmulShape Linear::forward_shape(Epilogue epilogue) const {
  return {.rows = options_.rows,
          .columns = options_.outputs,
          .depth = options_.inputs,
          .a = Layout::kPlain,
          .b = Layout::kTransposed,
          .operand = context_.dtype(),
          .result = result_,
          .batch = 1,
          .epilogue = epilogue,
          .d_stride = options_.output_stride};
}

MatmulShape Linear::parameter_shape(Epilogue epilogue, DType result) const {
  return {.rows = options_.outputs,
          .columns = options_.inputs,
          .depth = options_.rows,
          .a = Layout::kTransposed,
          .b = Layout::kPlain,
          .operand = context_.dtype(),
          .result = result,
          .batch = 1,
          .epilogue = epilogue,
          .a_stride = options_.output_stride};
}

MatmulShape Linear::input_shape(Epilogue epilogue) const {
  return {.rows = options_.rows,
          .columns = options_.inputs,
          .depth = options_.outputs,
          .a = Layout::kPlain,
          .b = Layout::kPlain,
          .operand = context_.dtype(),
          .result = context_.dtype(),
          .batch = 1,
          .epilogue = epilogue,
          .a_stride = options_.output_stride};
}

void Linear::forward(const Forward& step) {
  const bool has_residual = step.residual != nullptr;
  const void* bias = nullptr;
  if (bias_ != nullptr) bias = result_ == DType::kFloat32 ? bias_->value : bias_->copy;
  // If GELU is not fused, the product is written to the memory that keeps the input of GELU.
  void* const product = forward_.is_fused || step.before == nullptr ? step.y : step.before;
  context_.blas.run(*forward_.plan, {.a = step.x,
                                     .b = weight_.copy,
                                     .d = product,
                                     .c = step.residual,
                                     .bias = bias,
                                     .bias_gradient = nullptr,
                                     .aux = step.before,
                                     .alpha = 1.0f,
                                     .beta = has_residual ? 1.0f : 0.0f});
  if (forward_.is_fused) return;
  bias_activation(context_.stream(), {.activation = options_.activation,
                                      .dtype = result_,
                                      .rows = options_.rows,
                                      .width = options_.outputs,
                                      .x = product,
                                      .bias = bias_->value,
                                      .before = step.before,
                                      .y = step.y});
}

void Linear::backward_parameters(const void* x, const void* dy) {
  if (parameters_.is_rounded_by_product(weight_)) {
    context_.blas.run(*for_rounded_,
                      {.a = dy, .b = x, .d = weight_.rounded, .bias_gradient = bias_->rounded});
    parameters_.ready(weight_);
    parameters_.ready(*bias_);
    return;
  }
  const bool adds = parameters_.mode() == Into::kAdd;
  float* const bias_gradient = bias_ != nullptr ? bias_->gradient : nullptr;
  // The epilogue overwrites, so a gradient that is added is computed elsewhere first.
  float* const by_epilogue = adds ? context_.scratch() : bias_gradient;
  context_.blas.run(*for_parameters_.plan, {.a = dy,
                                            .b = x,
                                            .d = weight_.gradient,
                                            .bias_gradient = by_epilogue,
                                            .beta = adds ? 1.0f : 0.0f});
  if (bias_ == nullptr) return;
  parameters_.ready(weight_);
  if (for_parameters_.is_fused && adds) {
    fold(context_.stream(), {.partials = by_epilogue,
                             .parts = 1,
                             .stride = options_.outputs,
                             .width = options_.outputs,
                             .mode = Into::kAdd,
                             .into = bias_gradient});
  } else if (!for_parameters_.is_fused) {
    sum_columns(context_.stream(), {.matrix = dy,
                                    .dtype = context_.dtype(),
                                    .rows = options_.rows,
                                    .width = options_.outputs,
                                    .partials = context_.scratch(),
                                    .mode = parameters_.mode(),
                                    .into = bias_gradient});
  }
  parameters_.ready(*bias_);
}

void Linear::backward_input(const void* dy, void* dx, const void* before) {
  context_.blas.run(*for_input_.plan,
                    {.a = dy, .b = weight_.copy, .d = dx, .aux = const_cast<void*>(before)});
  if (for_input_.is_fused) return;
  activation_backward(context_.stream(), options_.input_activation, context_.dtype(), before,
                      options_.rows * options_.inputs, dx, dx);
}

}  // namespace kolo::trainer::cuda
