#pragma once

#include "comm/base/half.h"

/// CUDA's bfloat16. As on a GPU, a conversion turns every NaN into 0x7fff.

struct __nv_bfloat16 {
  kolo::BFloat16 value;
};

inline float __bfloat162float(__nv_bfloat16 value) { return kolo::to_float(value.value); }

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {value == value ? kolo::to_bfloat16(value) : kolo::BFloat16{0x7fff}};
}
