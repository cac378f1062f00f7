#pragma once

#include <type_traits>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/base/half.h"

namespace kolo::trainer::cuda {

// Elements of the three dtypes of activations, for the references of this folder.

inline float widen(float value) { return value; }
inline float widen(BFloat16 value) { return to_float(value); }
inline float widen(Float16 value) { return to_float(value); }

template <typename T>
T round_to(float value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return to_float16(value);
  }
}

/// Calls `body(T{})` with the element type of `dtype`.
template <typename Body>
void visit_element(DType dtype, Body&& body) {
  check(dtype == DType::kFloat32 || is_16bit_float(dtype), "a dtype of activations");
  if (dtype == DType::kFloat32) return std::forward<Body>(body)(float{});
  if (dtype == DType::kBFloat16) return std::forward<Body>(body)(BFloat16{});
  std::forward<Body>(body)(Float16{});
}

template <typename T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <typename T>
T* as(void* data) {
  return static_cast<T*>(data);
}

}  // namespace kolo::trainer::cuda
