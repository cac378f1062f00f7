#pragma once

#include <cmath>
#include <cstdint>

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

}  // namespace kolo::trainer::cuda
