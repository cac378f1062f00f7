#include "trainer/cuda/kernels/layer_norm.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

// threadIdx is (lane, warp of the row, row of the block). A lane keeps kLaneColumns columns of a
// row in registers, in packs of N neighbours, so that every element is read only once.
constexpr int kWarpColumns = kWarpSize * kLaneColumns;
constexpr int kMostThreads = kWarpSize * kMostNormWarps;

template <int N>
using Columns = float[kLaneColumns / N][N];

/// Calls body(pack, column of the pack's first element) for the lane's packs within the row.
template <int N, typename Body>
__device__ void for_packs(std::size_t width, Body&& body) {
#pragma unroll
  for (int p = 0; p < kLaneColumns / N; ++p) {
    const std::size_t column =
        threadIdx.y * kWarpColumns + static_cast<std::size_t>(p) * kWarpSize * N + threadIdx.x * N;
    if (column < width) body(p, column);
  }
}

/// Sums `values` over the warps of each row, for all rows of the block. `scratch` is [warps of the
/// block][kCount]. Before: no thread has used it since the last barrier.
template <int kCount>
__device__ void row_sums(float (&values)[kCount], float* scratch) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = warp_sum(values[i]);
  if (blockDim.y == 1) return;
  float* const of_row = scratch + threadIdx.z * blockDim.y * kCount;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) of_row[threadIdx.y * kCount + i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = warp_sum(threadIdx.x < blockDim.y ? of_row[threadIdx.x * kCount + i] : 0.0f);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kMostThreads)
    layer_norm_kernel(std::size_t rows, std::size_t width, const T* x, const float* gain,
                      const float* bias, T* y, float* mean_out, float* rstd_out) {
  __shared__ float scratch[2][kMostNormWarps];
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * blockDim.z + threadIdx.z;
  const std::size_t columns = row < rows ? width : 0;  // 0 for threads without a row, which must
                                                       // still reach the barriers
  const float scale = 1.0f / static_cast<float>(width);
  Columns<N> v;
  float sum[1] = {};
  for_packs<N>(columns, [&](int p, std::size_t c) {
    load(x + row * width + c, v[p]);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[0] += v[p][i];
  });
  row_sums(sum, scratch[0]);
  const float mean = scale * sum[0];
  float squares[1] = {};
  for_packs<N>(columns, [&](int p, std::size_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) squares[0] = fmaf(v[p][i] - mean, v[p][i] - mean, squares[0]);
  });
  row_sums(squares, scratch[1]);
  const float rstd = 1.0f / sqrtf(scale * squares[0] + 1e-5f);
  for_packs<N>(columns, [&](int p, std::size_t c) {
    float g[N], b[N];
    load(gain + c, g);
    load(bias + c, b);
#pragma unroll
    for (int i = 0; i < N; ++i) v[p][i] = fmaf((v[p][i] - mean) * rstd, g[i], b[i]);
    store(v[p], y + row * width + c);
  });
  if (columns > 0 && threadIdx.x == 0 && threadIdx.y == 0) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

// With n = (x - mean) rstd and g = dy gain:
//   dx = rstd (g - average(g) - n average(g n)),   dgain = sum(dy n),   dbias = sum(dy).
template <typename T, int N>
__global__ void __launch_bounds__(kMostThreads) layer_norm_backward_kernel(LayerNormBackward s) {
  __shared__ float scratch[2][2 * kMostNormWarps];
  extern __shared__ float
      others[];  // [rows of the block - 1][dgain, dbias][columns of the row's warps]
  const float scale = 1.0f / static_cast<float>(s.width);
  Columns<N> gain, dgain = {}, dbias = {};
  for_packs<N>(s.width, [&](int p, std::size_t c) { load(s.gain + c, gain[p]); });

  int turn = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.z;
  for (std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.z; first < s.rows;
       first += step, turn ^= 1) {
    const std::size_t row = first + threadIdx.z;
    const std::size_t columns = row < s.rows ? s.width : 0;
    const float mean = columns > 0 ? s.mean[row] : 0.0f;
    const float rstd = columns > 0 ? s.rstd[row] : 0.0f;
    Columns<N> n, dy;
    float sums[2] = {};  // sums of g and of g · n
    for_packs<N>(columns, [&](int p, std::size_t c) {
      load(static_cast<const T*>(s.dy) + row * s.width + c, dy[p]);
      load(static_cast<const T*>(s.x) + row * s.width + c, n[p]);
    });
    for_packs<N>(columns, [&](int p, std::size_t) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        n[p][i] = (n[p][i] - mean) * rstd;
        dgain[p][i] = fmaf(dy[p][i], n[p][i], dgain[p][i]);
        dbias[p][i] += dy[p][i];
        const float g = dy[p][i] * gain[p][i];
        sums[0] += g;
        sums[1] = fmaf(g, n[p][i], sums[1]);
      }
    });
    row_sums(sums, scratch[turn]);  // with alternating scratch, one barrier per row suffices
    const float average = scale * sums[0];
    const float along = scale * sums[1];
    for_packs<N>(columns, [&](int p, std::size_t c) {
      float dx[N] = {};
      if (s.residual != nullptr) load(static_cast<const T*>(s.residual) + row * s.width + c, dx);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dx[i] += rstd * (dy[p][i] * gain[p][i] - average - n[p][i] * along);
      }
      store(dx, static_cast<T*>(s.dx) + row * s.width + c);
    });
  }

  const std::size_t row_columns = static_cast<std::size_t>(blockDim.y) * kWarpColumns;
  if (threadIdx.z > 0) {
    float* const mine = others + (threadIdx.z - 1) * 2 * row_columns;
    for_packs<N>(s.width, [&](int p, std::size_t c) {
      store(dgain[p], mine + c);
      store(dbias[p], mine + row_columns + c);
    });
  }
  __syncthreads();
  if (threadIdx.z > 0) return;
  float* const partials = s.partials + blockIdx.x * 2 * s.width;
  for_packs<N>(s.width, [&](int p, std::size_t c) {
    for (unsigned other = 0; other + 1 < blockDim.z; ++other) {
      const float* const more = others + other * 2 * row_columns;
      float g[N], b[N];
      load(more + c, g);
      load(more + row_columns + c, b);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dgain[p][i] += g[i];
        dbias[p][i] += b[i];
      }
    }
    store(dgain[p], partials + c);
    store(dbias[p], partials + s.width + c);
  });
}

dim3 threads_of(const LayerNormPlan& plan) {
  return dim3(kWarpSize, static_cast<unsigned>(plan.warps), static_cast<unsigned>(plan.rows));
}

}  // namespace

void layer_norm(NativeStream stream, const LayerNormForward& s) {
  const LayerNormPlan plan = plan_layer_norm(s.rows, s.width);
  const auto blocks = static_cast<unsigned>(ceil_div(s.rows, plan.rows));
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    layer_norm_kernel<T, decltype(pack)::value><<<blocks, threads_of(plan), 0, native(stream)>>>(
        s.rows, s.width, as<T>(s.x), s.gain, s.bias, as<T>(s.y), s.mean, s.rstd);
  });
  check_launch("layer_norm");
}

void layer_norm_backward(NativeStream stream, const LayerNormBackward& s) {
  const LayerNormPlan plan = plan_layer_norm(s.rows, s.width);
  const std::size_t shared_bytes = (plan.rows - 1) * 2 * plan.warps * kWarpColumns * sizeof(float);
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    layer_norm_backward_kernel<T, decltype(pack)::value>
        <<<static_cast<unsigned>(plan.blocks), threads_of(plan), shared_bytes, native(stream)>>>(s);
  });
  check_launch("layer_norm_backward");
  const Fold gain{.partials = s.partials,
                  .parts = plan.blocks,
                  .stride = 2 * s.width,
                  .width = s.width,
                  .mode = s.mode,
                  .into = s.dgain};
  Fold bias = gain;
  bias.partials += s.width;
  bias.into = s.dbias;
  fold(stream, gain);
  fold(stream, bias);
}

}  // namespace kolo::trainer::cuda
