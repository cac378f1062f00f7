#include "trainer/cuda/kernels/column_sums.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kWarps = 8;

// Each warp sums every kWarps-th part of 32 neighbouring columns. Then the first warp adds up the
// sums of all warps.
__global__ void fold_kernel(const float* partials, std::size_t parts, std::size_t stride,
                            std::size_t width, bool adds, float* into) {
  __shared__ float sums[kWarps][kWarpSize];
  const std::size_t column = static_cast<std::size_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  float sum = 0.0f;
  if (column < width) {
    for (std::size_t p = threadIdx.y; p < parts; p += kWarps) sum += partials[p * stride + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][threadIdx.x];
  into[column] = adds ? into[column] + sum : sum;
}

// Block (x, y) sums columns [x · 32 N, …) over row slice y; warp w takes every kWarps-th row.
template <typename T, int N>
__global__ void sum_columns_kernel(const T* matrix, std::size_t rows, std::size_t width,
                                   float* partials) {
  __shared__ float sums[kWarps][N][kWarpSize];
  const std::size_t column = (static_cast<std::size_t>(blockIdx.x) * kWarpSize + threadIdx.x) * N;
  const std::size_t per_part = ceil_div<std::size_t>(rows, gridDim.y);
  const std::size_t begin = blockIdx.y * per_part;
  const std::size_t end = begin + per_part < rows ? begin + per_part : rows;
  float sum[N] = {};
  if (column < width) {
    for (std::size_t r = begin + threadIdx.y; r < end; r += kWarps) {
      float values[N];
      load(matrix + r * width + column, values);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[threadIdx.y][i][threadIdx.x] = sum[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int warp = 1; warp < kWarps; ++warp) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += sums[warp][i][threadIdx.x];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) partials[blockIdx.y * width + column + i] = sum[i];
}

}  // namespace

void fold(NativeStream stream, const Fold& f) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(f.width, kWarpSize));
  fold_kernel<<<blocks, dim3(kWarpSize, kWarps), 0, native(stream)>>>(
      f.partials, f.parts, f.stride, f.width, f.mode == Into::kAdd, f.into);
  check_launch("fold");
}

void sum_columns(NativeStream stream, const ColumnSums& s) {
  const std::size_t parts = column_sum_parts(s.rows);
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(s.width, kWarpSize * kPack));
    sum_columns_kernel<T, kPack>
        <<<dim3(blocks, static_cast<unsigned>(parts)), dim3(kWarpSize, kWarps), 0,
           native(stream)>>>(as<T>(s.matrix), s.rows, s.width, s.partials);
  });
  check_launch("sum_columns");
  fold(stream, {.partials = s.partials,
                .parts = parts,
                .stride = s.width,
                .width = s.width,
                .mode = s.mode,
                .into = s.into});
}

}  // namespace kolo::trainer::cuda
