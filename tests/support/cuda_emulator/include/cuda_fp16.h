#pragma once

#include "comm/base/half.h"

/// CUDA's float16. As on a GPU, a conversion turns every NaN into 0x7fff.

struct __half {
  kolo::Float16 value;
};

inline float __half2float(__half value) { return kolo::to_float(value.value); }

inline __half __float2half_rn(float value) {
  return {value == value ? kolo::to_float16(value) : kolo::Float16{0x7fff}};
}
