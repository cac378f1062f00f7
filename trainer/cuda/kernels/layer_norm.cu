#include "trainer/cuda/kernels/layer_norm.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/reduce.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kWarps = 4;

// Each lane takes packs of N neighbouring columns, 32 N apart; the row is read from memory once and
// twice more from the cache.
template <typename T, int N>
__global__ void layer_norm_kernel(std::size_t rows, std::size_t width, const T* x,
                                  const float* gain, const float* bias, T* y, float* mean_out,
                                  float* rstd_out) {
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (row >= rows) return;
  const T* in = x + row * width;
  const std::size_t first = threadIdx.x * N;
  const float scale = 1.0f / static_cast<float>(width);
  float v[N];

  float sum = 0.0f;
  for (std::size_t c = first; c < width; c += kWarpSize * N) {
    load(in + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += v[i];
  }
  const float mean = scale * warp_sum(sum);
  float squares = 0.0f;
  for (std::size_t c = first; c < width; c += kWarpSize * N) {
    load(in + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) squares = fmaf(v[i] - mean, v[i] - mean, squares);
  }
  const float rstd = 1.0f / sqrtf(scale * warp_sum(squares) + 1e-5f);
  for (std::size_t c = first; c < width; c += kWarpSize * N) {
    load(in + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = fmaf((v[i] - mean) * rstd, gain[c + i], bias[c + i]);
    store(v, y + row * width + c);
  }
  if (threadIdx.x == 0) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

// With n = (x - mean) rstd and g = dy gain:
//   dx = rstd (g - average(g) - n average(g n)),   dgain = sum(dy n),   dbias = sum(dy).
template <typename T, int N>
__global__ void layer_norm_backward_kernel(LayerNormBackward s, std::size_t padded_width) {
  extern __shared__ float sums[];  // [warps][dgain, dbias][padded_width], in the order of lane_slot
  float* dgain = sums + threadIdx.y * 2 * padded_width;
  float* dbias = dgain + padded_width;
  const std::size_t first = threadIdx.x * N;
  const float scale = 1.0f / static_cast<float>(s.width);
  float dy[N];
  float x[N];
  for (std::size_t c = first; c < s.width; c += kWarpSize * N) {
#pragma unroll
    for (int i = 0; i < N; ++i) dgain[lane_slot<N>(c + i)] = dbias[lane_slot<N>(c + i)] = 0.0f;
  }

  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.y;
  for (std::size_t row = static_cast<std::size_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       row < s.rows; row += step) {
    const T* dy_row = static_cast<const T*>(s.dy) + row * s.width;
    const T* x_row = static_cast<const T*>(s.x) + row * s.width;
    const float mean = s.mean[row];
    const float rstd = s.rstd[row];
    float average = 0.0f;
    float along = 0.0f;
    for (std::size_t c = first; c < s.width; c += kWarpSize * N) {
      load(dy_row + c, dy);
      load(x_row + c, x);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float n = (x[i] - mean) * rstd;
        const float g = dy[i] * s.gain[c + i];
        average += g;
        along = fmaf(g, n, along);
        dgain[lane_slot<N>(c + i)] += dy[i] * n;
        dbias[lane_slot<N>(c + i)] += dy[i];
      }
    }
    average = scale * warp_sum(average);
    along = scale * warp_sum(along);
    for (std::size_t c = first; c < s.width; c += kWarpSize * N) {
      load(dy_row + c, dy);
      load(x_row + c, x);
      float dx[N] = {};
      if (s.residual != nullptr) {
        load(static_cast<const T*>(s.residual) + row * s.width + c, dx);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float n = (x[i] - mean) * rstd;
        dx[i] += rstd * (dy[i] * s.gain[c + i] - average - n * along);
      }
      store(dx, static_cast<T*>(s.dx) + row * s.width + c);
    }
  }

  __syncthreads();
  const std::size_t threads = static_cast<std::size_t>(blockDim.y) * kWarpSize;
  float* partials = s.partials + blockIdx.x * 2 * s.width;
  for (std::size_t i = threadIdx.y * kWarpSize + threadIdx.x; i < 2 * s.width; i += threads) {
    const std::size_t slot =
        i < s.width ? lane_slot<N>(i) : padded_width + lane_slot<N>(i - s.width);
    float sum = 0.0f;
    for (unsigned warp = 0; warp < blockDim.y; ++warp) sum += sums[warp * 2 * padded_width + slot];
    partials[i] = sum;
  }
}

}  // namespace

void layer_norm(NativeStream stream, const LayerNormForward& s) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(s.rows, kWarps));
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    layer_norm_kernel<T, decltype(pack)::value>
        <<<blocks, dim3(kWarpSize, kWarps), 0, native(stream)>>>(
            s.rows, s.width, as<T>(s.x), s.gain, s.bias, as<T>(s.y), s.mean, s.rstd);
  });
  check_launch("layer_norm");
}

void layer_norm_backward(NativeStream stream, const LayerNormBackward& s) {
  const LayerNormPlan plan = plan_layer_norm_backward(s.rows, s.width, s.dtype);
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    layer_norm_backward_kernel<T, kPack>
        <<<static_cast<unsigned>(plan.blocks), dim3(kWarpSize, static_cast<unsigned>(plan.warps)),
           plan.shared_bytes, native(stream)>>>(s,
                                                round_up<std::size_t>(s.width, kWarpSize * kPack));
  });
  check_launch("layer_norm_backward");
  const Fold gain{.partials = s.partials,
                  .parts = plan.blocks,
                  .stride = 2 * s.width,
                  .width = s.width,
                  .mode = FoldInto::kOverwrite,
                  .into = s.dgain};
  Fold bias = gain;
  bias.partials += s.width;
  bias.into = s.dbias;
  fold(stream, gain);
  fold(stream, bias);
}

}  // namespace kolo::trainer::cuda
