#pragma once

#include <cstddef>
#include <string>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/parameters.h"

namespace kolo::trainer::cuda {

/// A dense layer: y = activation(x · Wᵀ + b) or y = x · Wᵀ + b + residual.
///
/// Bias, activation, its derivative and the bias gradient are fused with the products if cuBLAS
/// supports that, and are separate kernels otherwise. The constructor makes this choice.
///
/// Shape:   x is [rows, inputs], W is [outputs, inputs], b is [outputs], y is [rows, outputs]. All
///          are in device memory, aligned to 16 bytes, and of the context's dtype.
/// Threads: one. Stream: that of the context, which outlives this layer.
class Linear {
 public:
  struct Options {
    std::size_t rows;
    std::size_t inputs;
    std::size_t outputs;
    Activation activation = Activation::kNone;  ///< Activation of this layer's output.
    /// Activation of the previous layer, whose derivative `backward_input` includes: GELU or none,
    /// because no product computes that of ReLU.
    Activation input_activation = Activation::kNone;
    bool is_float32_result = false;  ///< Whether y is float32, as for logits.
    /// Elements from one row of y, and of its gradient, to the next; 0: `outputs`. Another stride
    /// is for layers without bias.
    std::size_t output_stride = 0;
  };

  /// If `bias` is null, another layer shares the weight. That layer must come later in the backward
  /// pass; it adds its part to the weight's gradient and reports the gradient ready.
  Linear(Context& context, DeviceParameters& parameters, DeviceParameter& weight,
         DeviceParameter* bias, const Options& options);
  Linear(Context& context, DeviceParameters& parameters, const std::string& name,
         const Options& options)
      : Linear(context, parameters, parameters.of(name + ".weight"), &parameters.of(name + ".bias"),
               options) {}

  struct Forward {
    const void* x;
    void* y;
    /// Receives the input of the activation, [rows, outputs]; only for GELU.
    void* before = nullptr;
    const void* residual = nullptr;  ///< Residual, [rows, outputs]; null if there is an activation.
  };
  void forward(const Forward& step);

  /// Computes the gradients of weight and bias, and reports them ready.
  void backward_parameters(const void* x, const void* dy);

  /// Computes the gradient of x or, if there is an input activation, the gradient of that
  /// activation's input, `before`.
  void backward_input(const void* dy, void* dx, const void* before = nullptr);

 private:
  MatmulShape forward_shape(Epilogue epilogue) const;
  MatmulShape parameter_shape(Epilogue epilogue, DType result) const;
  MatmulShape input_shape(Epilogue epilogue) const;

  // The plan of a product, and whether its epilogue replaces a separate kernel.
  struct Product {
    const Blas::Plan* plan;
    bool is_fused;
  };
  Product plan(const MatmulShape& fused, const MatmulShape& plain);

  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& weight_;
  DeviceParameter* bias_;
  Options options_;
  DType result_;
  Product forward_, for_parameters_, for_input_;
  // Computes bfloat16 gradients of weight and bias; null if the library does not, or if `bias_` is.
  const Blas::Plan* for_rounded_ = nullptr;
};

}  // namespace kolo::trainer::cuda
