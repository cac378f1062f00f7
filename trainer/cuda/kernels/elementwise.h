#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

enum class Activation : std::uint8_t { kNone, kRelu, kGelu };

// The tanh approximation of GELU, as trainer/kernels computes it. With
// u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 + exp(-2u)),
//   gelu(x) = x s,   gelu'(x) = s + x s (1 - s) 2 du/dx.

KOLO_HOST_DEVICE inline float gelu_sigmoid(float x) {
  const float twice_u = 1.5957691216f * x * (1.0f + 0.044715f * x * x);
  return 1.0f / (1.0f + expf(-fmaxf(twice_u, -80.0f)));  // keeps exp from overflowing
}

KOLO_HOST_DEVICE inline float activate(Activation activation, float x) {
  if (activation == Activation::kRelu) return x < 0.0f ? 0.0f : x;  // NaN stays
  if (activation == Activation::kGelu) return x * gelu_sigmoid(x);
  return x;
}

/// The derivative of `activate` at x.
KOLO_HOST_DEVICE inline float slope(Activation activation, float x) {
  if (activation == Activation::kRelu) return x > 0.0f ? 1.0f : 0.0f;
  if (activation == Activation::kNone) return 1.0f;
  const float s = gelu_sigmoid(x);
  const float twice_du = 1.5957691216f * (1.0f + 3.0f * 0.044715f * x * x);
  return s + x * s * (1.0f - s) * twice_du;
}

/// Computes v = x + bias for each row, before = v, and y = activation(v). It follows a product
/// whose epilogue cannot do this.
///
/// Shape: x, before and y are [rows, width] of `dtype`, aligned to 16 bytes; any two may be the
///        same memory. `bias` is [width], or null for none; `before` is null if it is not needed.
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

/// Computes dx = dy · activation'(before), element by element. `dx` may be `dy`. For ReLU, `before`
/// may be the result of the activation.
void activation_backward(NativeStream stream, Activation activation, DType dtype,
                         const void* before, std::size_t count, const void* dy, void* dx);

/// Computes y = a + b, `count` elements of `dtype`, aligned to 16 bytes.
void add_elements(NativeStream stream, DType dtype, std::size_t count, const void* a, const void* b,
                  void* y);

/// Rounds `count` float32 values to `dtype`, to nearest with ties to even.
///
/// Shape:  device memory aligned to 16 bytes. Bits: equal to the reference, except for 16-bit NaNs.
void cast(NativeStream stream, const float* from, std::size_t count, DType dtype, void* into);

/// Converts pixels to elements of `dtype`: channels of the image are table[byte], those after them
/// zero.
///
/// Shape:  bytes is [count, image_channels], table [256], into [count, channels].
/// Bits:   equal to the reference, except for 16-bit NaNs.
struct PixelCast {
  const std::uint8_t* bytes;
  const float* table;
  std::size_t count;
  std::size_t image_channels;
  std::size_t channels;
  DType dtype;
  void* into;
};

void scale_pixels(NativeStream stream, const PixelCast& pixels);

}  // namespace kolo::trainer::cuda
