#pragma once

/// Marks functions that kernels and their references on the processor share.
#ifdef __CUDACC__
#define KOLO_HOST_DEVICE __host__ __device__
#else
#define KOLO_HOST_DEVICE
#endif

namespace kolo::trainer::cuda {

template <typename T>
KOLO_HOST_DEVICE constexpr T ceil_div(T count, T by) {
  return (count + by - 1) / by;
}

template <typename T>
KOLO_HOST_DEVICE constexpr T round_up(T count, T to) {
  return ceil_div(count, to) * to;
}

}  // namespace kolo::trainer::cuda
