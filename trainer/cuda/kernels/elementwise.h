#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

enum class Activation : std::uint8_t { kNone, kRelu, kGelu };

// The tanh approximation of GELU as trainer/kernels computes it: with
// u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 + exp(-2u)),
//   gelu(x) = x s,   gelu'(x) = s + x s (1 - s) 2 du/dx.

KOLO_HOST_DEVICE inline float gelu_sigmoid(float x) {
  const float twice_u = 1.5957691216f * x * (1.0f + 0.044715f * x * x);
  return 1.0f / (1.0f + expf(-fmaxf(twice_u, -80.0f)));  // beyond, exp would overflow
}

KOLO_HOST_DEVICE inline float activate(Activation activation, float x) {
  if (activation == Activation::kRelu) return fmaxf(x, 0.0f);
  if (activation == Activation::kGelu) return x * gelu_sigmoid(x);
  return x;
}

/// Derivative of `activate` at x.
KOLO_HOST_DEVICE inline float slope(Activation activation, float x) {
  if (activation == Activation::kRelu) return x > 0.0f ? 1.0f : 0.0f;
  if (activation == Activation::kNone) return 1.0f;
  const float s = gelu_sigmoid(x);
  const float twice_du = 1.5957691216f * (1.0f + 3.0f * 0.044715f * x * x);
  return s + x * s * (1.0f - s) * twice_du;
}

/// v = x + bias (of each row), before = v, y = activation(v): follows a product whose epilogue
/// cannot do this.
///
/// Shape: x, before and y are [rows, width] of `dtype`, aligned to 16 bytes; any two of them may be
///        the same memory. `bias` [width] may be null for none, and `before` if it is not needed.
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

/// Rounds `count` float32 values to `dtype`, to nearest with ties to even.
///
/// Shape:  device memory aligned to 16 bytes. Bits: as the reference, except for NaNs in 16 bits.
void cast(NativeStream stream, const float* from, std::size_t count, DType dtype, void* into);

/// Grey pixels to elements of `dtype`: channel 0 is table[byte], the padding channels are zero.
///
/// Shape:  bytes [count], table [256], into [count, channels].
/// Bits:   as the reference, except for NaNs in 16 bits.
struct PixelCast {
  const std::uint8_t* bytes;
  const float* table;
  std::size_t count;
  std::size_t channels;
  DType dtype;
  void* into;
};

void scale_pixels(NativeStream stream, const PixelCast& pixels);

}  // namespace kolo::trainer::cuda
