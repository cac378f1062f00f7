#include "trainer/cuda/kernels/causal_softmax.h"

#include <cmath>

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/kernels/reduce.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kWarps = 4;

// A pack that begins at or before the diagonal is read whole and masked; later ones are not read.
template <typename T, int N>
__global__ void causal_softmax_kernel(std::size_t rows, std::size_t length, T* scores) {
  const std::size_t r = static_cast<std::size_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (r >= rows) return;
  T* row = scores + r * length;
  const std::size_t used = r % length + 1;
  const std::size_t first = threadIdx.x * N;
  float v[N];

  float top = -INFINITY;
  for (std::size_t c = first; c < used; c += kWarpSize * N) {
    load(row + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) top = c + i < used ? fmaxf(top, v[i]) : top;
  }
  top = warp_max(top);
  float sum = 0.0f;
  for (std::size_t c = first; c < used; c += kWarpSize * N) {
    load(row + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += c + i < used ? expf(v[i] - top) : 0.0f;
  }
  const float factor = 1.0f / warp_sum(sum);
  for (std::size_t c = first; c < length; c += kWarpSize * N) {
    if (c < used) load(row + c, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = c + i < used ? factor * expf(v[i] - top) : 0.0f;
    store(v, row + c);
  }
}

template <typename T, int N>
__global__ void causal_softmax_backward_kernel(std::size_t rows, std::size_t length,
                                               const T* weights, T* gradient) {
  const std::size_t r = static_cast<std::size_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (r >= rows) return;
  const T* w_row = weights + r * length;
  T* g_row = gradient + r * length;
  const std::size_t used = r % length + 1;
  const std::size_t first = threadIdx.x * N;
  float w[N];
  float g[N];

  float dot = 0.0f;
  for (std::size_t c = first; c < used; c += kWarpSize * N) {
    load(w_row + c, w);
    load(g_row + c, g);
#pragma unroll
    for (int i = 0; i < N; ++i) dot = c + i < used ? fmaf(w[i], g[i], dot) : dot;
  }
  dot = warp_sum(dot);
  for (std::size_t c = first; c < length; c += kWarpSize * N) {
    if (c < used) {
      load(w_row + c, w);
      load(g_row + c, g);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] = c + i < used ? w[i] * (g[i] - dot) : 0.0f;
    store(g, g_row + c);
  }
}

}  // namespace

void causal_softmax(NativeStream stream, const CausalSoftmax& s) {
  const std::size_t rows = s.matrices * s.length;
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(rows, kWarps));
  visit_packed(s.dtype, s.length, [&](auto element, auto pack) {
    using T = decltype(element);
    causal_softmax_kernel<T, decltype(pack)::value>
        <<<blocks, dim3(kWarpSize, kWarps), 0, native(stream)>>>(rows, s.length, as<T>(s.scores));
  });
  check_launch("causal_softmax");
}

void causal_softmax_backward(NativeStream stream, const CausalSoftmaxBackward& s) {
  const std::size_t rows = s.matrices * s.length;
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(rows, kWarps));
  visit_packed(s.dtype, s.length, [&](auto element, auto pack) {
    using T = decltype(element);
    causal_softmax_backward_kernel<T, decltype(pack)::value>
        <<<blocks, dim3(kWarpSize, kWarps), 0, native(stream)>>>(rows, s.length, as<T>(s.weights),
                                                                 as<T>(s.gradient));
  });
  check_launch("causal_softmax_backward");
}

}  // namespace kolo::trainer::cuda
