#include "trainer/cuda/kernels/softmax.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {
namespace {

constexpr int kWarps = 4;

// A pack that begins at or before the diagonal is read whole and masked; later packs are not read.
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

constexpr int kTotalThreads = 256;

constexpr int kMostRowWarps = 8;

/// Reduces a block's values to one, which all its threads get. `reduce` does so for a warp, and
/// `neutral` changes no result. `scratch` holds kMostRowWarps values that nobody else uses.
template <typename Reduce>
__device__ float over_block(float value, float neutral, float* scratch, Reduce&& reduce) {
  const unsigned lane = threadIdx.x % kWarpSize;
  value = reduce(value);
  if (lane == 0) scratch[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return reduce(lane < blockDim.x / kWarpSize ? scratch[lane] : neutral);
}

// Each block computes loss and gradient of one row. It reads the row twice: for the largest logit
// together with the sum, whose terms a thread scales again when it finds a larger one, and for the
// gradient.
template <typename T>
__global__ void cross_entropy_kernel(std::size_t classes, std::size_t stride, const float* logits,
                                     const std::int32_t* targets, const BatchHeader* header,
                                     T* gradient, float* row_results) {
  __shared__ float scratch[3][kMostRowWarps];
  const std::size_t r = blockIdx.x;
  const float* row = logits + r * stride;
  const bool counts = r < header->targets;
  const std::size_t target = counts ? static_cast<std::size_t>(targets[r]) : 0;

  float own_top = -FLT_MAX;
  float own_sum = 0.0f;
  std::size_t first = 0;  // the thread's first column with own_top
  for (std::size_t c = threadIdx.x; c < classes; c += blockDim.x) {
    if (row[c] > own_top) {
      own_sum *= expf(own_top - row[c]);
      own_top = row[c];
      first = c;
    }
    own_sum += expf(row[c] - own_top);
  }
  const auto largest = [](float value) { return warp_max(value); };
  const auto total = [](float value) { return warp_sum(value); };
  const float top = over_block(own_top, -FLT_MAX, scratch[0], largest);
  const float sum = over_block(own_sum * expf(own_top - top), 0.0f, scratch[1], total);
  // Whether an equal logit comes before the target's.
  const bool is_beaten = own_top == top && first < target;
  const float beaten = over_block(is_beaten ? 1.0f : 0.0f, 0.0f, scratch[2], total);

  if (gradient != nullptr) {
    const float weight = counts ? header->row_weight * header->loss_scale : 0.0f;
    for (std::size_t c = threadIdx.x; c < classes; c += blockDim.x) {
      const float share = expf(row[c] - top) / sum;
      const float value = weight * (c == target ? share - 1.0f : share);
      gradient[r * stride + c] = round_to<T>(counts ? value : 0.0f);
    }
  }
  if (threadIdx.x == 0) {
    const bool is_correct = beaten == 0.0f && row[target] == top;
    row_results[2 * r] = counts ? logf(sum) - (row[target] - top) : 0.0f;
    row_results[2 * r + 1] = counts && is_correct ? 1.0f : 0.0f;
  }
}

// The only block adds up all rows: each thread sums every kTotalThreads-th row, then `block_sum`
// adds up the threads.
__global__ void add_totals_kernel(std::size_t rows, const float* row_results, LossTotals* totals) {
  __shared__ double scratch[2][kTotalThreads / kWarpSize];
  double loss = 0.0;
  double correct = 0.0;
  for (std::size_t r = threadIdx.x; r < rows; r += kTotalThreads) {
    loss += row_results[2 * r];
    correct += row_results[2 * r + 1];
  }
  loss = block_sum<kTotalThreads>(loss, scratch[0]);
  correct = block_sum<kTotalThreads>(correct, scratch[1]);
  if (threadIdx.x != 0) return;
  totals->loss += loss;
  totals->correct += correct;
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

void cross_entropy(NativeStream stream, const CrossEntropy& s) {
  constexpr std::size_t kLaneClasses = 32;  // that a thread takes before a row gets another warp
  const std::size_t warps = ceil_div<std::size_t>(s.classes, kWarpSize * kLaneClasses);
  const auto threads =
      static_cast<unsigned>(kWarpSize * std::min<std::size_t>(warps, kMostRowWarps));
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    cross_entropy_kernel<<<static_cast<unsigned>(s.rows), threads, 0, native(stream)>>>(
        s.classes, s.stride, s.logits, s.targets, s.header, as<T>(s.gradient), s.row_results);
  });
  check_launch("cross_entropy");
  add_totals_kernel<<<1, kTotalThreads, 0, native(stream)>>>(s.rows, s.row_results, s.totals);
  check_launch("add_totals");
}

}  // namespace kolo::trainer::cuda
