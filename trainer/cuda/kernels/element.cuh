#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"

namespace kolo::trainer::cuda {

// These functions convert elements of the three activation dtypes, alone and in packs of 16 bytes.

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(__half value) { return __half2float(value); }

template <typename T>
__device__ inline T round_to(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return __float2half_rn(value);
  }
}

/// N elements, loaded or stored by one instruction, or by several if they exceed 16 bytes.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T values[N];
};

/// Number of elements of T in 16 bytes.
template <typename T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

template <int N, typename T>
__device__ inline void load(const T* from, float (&into)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) into[i] = widen(pack.values[i]);
}

template <int N, typename T>
__device__ inline void store(const float (&from)[N], T* into) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = round_to<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(into) = pack;
}

/// Calls `body(T{})`, where T is the element type of `dtype`.
template <typename Body>
void visit_element(DType dtype, Body&& body) {
  check(dtype == DType::kFloat32 || is_16bit_float(dtype), "a dtype of activations");
  if (dtype == DType::kFloat32) return std::forward<Body>(body)(float{});
  if (dtype == DType::kBFloat16) return std::forward<Body>(body)(__nv_bfloat16{});
  std::forward<Body>(body)(__half{});
}

/// Calls `body(T{}, integral_constant<N>)`, where N is the number of elements of a pack: 16 bytes
/// if rows of `width` elements consist of whole packs, otherwise 1 element.
template <typename Body>
void visit_packed(DType dtype, std::size_t width, Body&& body) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    if (width % kPackSize<T> == 0) {
      body(element, std::integral_constant<int, kPackSize<T>>{});
    } else {
      body(element, std::integral_constant<int, 1>{});
    }
  });
}

template <typename T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <typename T>
T* as(void* data) {
  return static_cast<T*>(data);
}

inline cudaStream_t native(NativeStream stream) { return static_cast<cudaStream_t>(stream.handle); }

// These reductions have an order that depends only on shapes, so every run gives the same bits.

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// The sum over a warp, with equal bits in all lanes: both lanes of an exchange add the same two
/// values, and addition is commutative.
template <typename T>
__device__ inline T warp_sum(T value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}

/// The sum over a block of kThreads, valid in thread 0 only. `scratch` holds kThreads / 32 values.
template <int kThreads, typename T>
__device__ inline T block_sum(T value, T* scratch) {
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) scratch[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T sum{};
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kThreads / kWarpSize; ++warp) sum += scratch[warp];
  }
  return sum;
}

}  // namespace kolo::trainer::cuda
