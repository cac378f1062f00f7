#pragma once

#include <cstddef>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/parameters/device_parameters.h"
#include "trainer/cuda/parameters/registration.h"

namespace kolo::trainer::cuda {

/// Normalises each row to mean 0 and variance 1, then applies a learnt gain and bias.
///
/// Shape: x, y and gradients are [rows, width] of the context's dtype.
class LayerNorm {
 public:
  LayerNorm(Context& context, DeviceParameters& parameters, const LayerNormParameters& names,
            std::size_t rows, std::size_t width);

  void forward(const void* x, void* y);

  struct Backward {
    const void* dy;
    const void* x;         ///< As in the forward pass.
    const void* residual;  ///< Gradient of x by the residual path, which is added; null for none.
    void* dx;              ///< May be `residual`.
  };
  /// Overwrites the gradients of gain and bias and reports them ready.
  void backward(const Backward& step);

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& gain_;
  DeviceParameter& bias_;
  std::size_t rows_;
  std::size_t width_;
  DeviceMemory mean_, rstd_;
};

}  // namespace kolo::trainer::cuda
