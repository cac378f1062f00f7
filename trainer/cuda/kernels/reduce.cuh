#pragma once

namespace kolo::trainer::cuda {

// Reductions whose order depends only on shapes, so every run gives the same bits.

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// Sum over a warp, the same bits in all lanes: both sides of a butterfly add the same two values,
/// and addition is commutative.
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

/// Sum over a block of kThreads, in thread 0 only. `scratch` holds kThreads / 32 values.
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
