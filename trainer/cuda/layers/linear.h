#pragma once

#include <cstddef>
#include <string>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/parameters.h"

namespace kolo::trainer::cuda {

/// y = activation(x · Wᵀ + b) + residual, with an activation or a residual, not both.
///
/// Bias, activation, its derivative and the bias gradient are fused into the products where cuBLAS
/// supports that, and separate kernels elsewhere; the choice is made once, at construction.
///
/// Shape:   x is [rows, inputs], W is [outputs, inputs], b is [outputs], y is [rows, outputs];
///          device memory aligned to 16 bytes, in the dtype of the context unless options say
///          otherwise.
/// Threads: one. Stream: the context's, which outlives it.
class Linear {
 public:
  struct Options {
    std::size_t rows;
    std::size_t inputs;
    std::size_t outputs;
    Activation activation = Activation::kNone;  ///< Activation of this layer's output.
    /// Activation of the previous layer, whose output is x: `backward_input` differentiates through
    /// it.
    Activation input_activation = Activation::kNone;
    bool is_float32_result = false;  ///< For logits: y is float32.
  };

  /// A null `bias` means that the weight is shared with a layer that comes later in the backward
  /// pass, adds its part to the gradient and reports it ready.
  Linear(Context& context, DeviceParameters& parameters, DeviceParameter& weight,
         DeviceParameter* bias, const Options& options);
  Linear(Context& context, DeviceParameters& parameters, const std::string& name,
         const Options& options)
      : Linear(context, parameters, parameters.of(name + ".weight"), &parameters.of(name + ".bias"),
               options) {}

  struct Forward {
    const void* x;
    void* y;
    /// GELU only, [rows, outputs]: receives the input of the activation.
    void* before = nullptr;
    const void* residual = nullptr;  ///< [rows, outputs]; not together with an activation.
  };
  void forward(const Forward& step);

  /// Overwrites the gradients of weight and bias and reports them ready.
  void backward_parameters(const void* x, const void* dy);

  /// Computes the gradient of x or, with an input activation, of the activation's input. `before`
  /// is that input for GELU, or x itself for ReLU.
  void backward_input(const void* dy, void* dx, const void* before = nullptr);

 private:
  MatmulShape forward_shape(Epilogue epilogue) const;
  MatmulShape parameter_shape(Epilogue epilogue) const;
  MatmulShape input_shape(Epilogue epilogue) const;

  // A product, and whether its epilogue replaces a separate kernel.
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
};

}  // namespace kolo::trainer::cuda
