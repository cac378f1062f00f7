#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/activation_math.h"

namespace kolo::trainer::cuda {

/// v = x + bias (of each row), before = v, y = activation(v): follows a product whose epilogue
/// cannot do this.
///
/// Shape: x, before and y are [rows, width] of `dtype`, aligned to 16 bytes; any of them may be the
///        same memory as another one at the same place. `bias` [width] may be null for none, and
///        `before` if it is not needed.
struct BiasActivation {
  Activation activation;
  DType dtype;
  std::size_t rows;
  std::size_t width;
  const void* x;
  const float* bias;
  void* before;
  void* y;
};

void bias_activation(NativeStream stream, const BiasActivation& step);

/// gradient *= activation'(before), element by element.
void activation_backward(NativeStream stream, Activation activation, DType dtype,
                         const void* before, std::size_t count, void* gradient);

namespace reference {
void bias_activation(const BiasActivation& step);
void activation_backward(Activation activation, DType dtype, const void* before, std::size_t count,
                         void* gradient);
}  // namespace reference

}  // namespace kolo::trainer::cuda
