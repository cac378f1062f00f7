#include "trainer/cuda/kernels/batch_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr double kEpsilon = 1e-5;
constexpr double kNewShare = 0.1;  // weight of a pass in the running statistics

// Block (x, y) sums columns [x · blockDim.x · N, …) over row slice y. Without dy: d and d², where d
// is x less its first row. With dy: dy and dy · n, where n is x normalized.
template <typename T, int N>
__global__ void moments_kernel(BatchNormForward s, const T* dy) {
  __shared__ float sums[kThreads][2 * N];
  const std::size_t column = (static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  const std::size_t rows = s.counted_rows();
  const std::size_t per_part = ceil_div<std::size_t>(rows, gridDim.y);
  const std::size_t begin = blockIdx.y * per_part;
  const std::size_t end = begin + per_part < rows ? begin + per_part : rows;
  const T* const x = static_cast<const T*>(s.x);
  float(&sum)[2 * N] = sums[threadIdx.y * blockDim.x + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 2 * N; ++i) sum[i] = 0.0f;
  if (column < s.channels) {
    float shift[N], scale[N] = {}, first[N] = {}, second[N] = {};
    if (dy == nullptr) {
      load(x + column, shift);
    } else {
      load(s.mean + column, shift);
      load(s.rstd + column, scale);
    }
    for (std::size_t r = begin + threadIdx.y; r < end; r += blockDim.y) {
      float v[N], g[N] = {};
      load(x + r * s.channels + column, v);
      if (dy != nullptr) load(dy + r * s.channels + column, g);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float d = v[i] - shift[i];
        first[i] += dy == nullptr ? d : g[i];
        second[i] = dy == nullptr ? fmaf(d, d, second[i]) : fmaf(g[i], d * scale[i], second[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sum[i] = first[i];
      sum[N + i] = second[i];
    }
  }
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    const float(&other)[2 * N] = sums[(threadIdx.y + half) * blockDim.x + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 2 * N; ++i) sum[i] += other[i];
  }
  if (threadIdx.y != 0 || column >= s.channels) return;
  float* const into = s.partials + static_cast<std::size_t>(blockIdx.y) * 2 * s.channels + column;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    into[i] = sum[i];
    into[s.channels + i] = sum[N + i];
  }
}

struct Moments {
  double first = 0.0;
  double second = 0.0;
};

__device__ Moments moments_of(std::size_t channel, const BatchNormForward& s, std::size_t parts) {
  Moments sums;
  for (std::size_t part = 0; part < parts; ++part) {
    sums.first += static_cast<double>(s.partials[2 * part * s.channels + channel]);
    sums.second += static_cast<double>(s.partials[(2 * part + 1) * s.channels + channel]);
  }
  return sums;
}

__device__ std::size_t thread_index() {
  return static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
}

// Computes the statistics of a channel, and the factors with which y = a x + c.
template <typename T>
__global__ void statistics_kernel(BatchNormForward s, std::size_t parts) {
  const std::size_t j = thread_index();
  if (j >= s.channels) return;
  double mean = static_cast<double>(s.running_mean[j]);
  double variance = static_cast<double>(s.running_variance[j]);
  if (s.is_training) {
    const auto rows = static_cast<double>(s.counted_rows());
    Moments sums = moments_of(j, s, parts);
    if (rows > 0.0) sums = {sums.first / rows, sums.second / rows};
    // Without rows, any finite values serve, because there are no gradients.
    const auto first_row = static_cast<double>(widen(static_cast<const T*>(s.x)[j]));
    const double rest = sums.second - sums.first * sums.first;
    const double old_mean = mean, old_variance = variance;
    mean = rows > 0.0 ? first_row + sums.first : 0.0;
    variance = rows > 0.0 ? (rest > 0.0 ? rest : 0.0) : 1.0;
    const double both = sums.first + sums.second;
    if (rows > 1.0 && both - both == 0.0) {  // An infinity or NaN would stay for ever.
      const double unbiased = variance * rows / (rows - 1.0);
      s.running_mean[j] = static_cast<float>((1.0 - kNewShare) * old_mean + kNewShare * mean);
      s.running_variance[j] =
          static_cast<float>((1.0 - kNewShare) * old_variance + kNewShare * unbiased);
    }
  }
  s.mean[j] = static_cast<float>(mean);
  s.rstd[j] = static_cast<float>(1.0 / sqrt(variance + kEpsilon));
  const float a = s.gain[j] * s.rstd[j];
  s.factors[j] = a;
  s.factors[2 * s.channels + j] = s.bias[j] - s.mean[j] * a;
}

// Stores the parameters' gradients of a channel, and the factors with which dx = a dy + b x + c:
//   dx = gain rstd (dy - average(dy) - n average(dy n)),   dgain = sum(dy n),   dbias = sum(dy).
__global__ void slopes_kernel(BatchNormBackward b, std::size_t parts) {
  const BatchNormForward& s = b.of;
  const std::size_t j = thread_index();
  if (j >= s.channels) return;
  const Moments sums = moments_of(j, s, parts);
  const bool adds = b.mode == Into::kAdd;
  const auto dgain = static_cast<float>(sums.second);
  const auto dbias = static_cast<float>(sums.first);
  b.dgain[j] = adds ? b.dgain[j] + dgain : dgain;
  b.dbias[j] = adds ? b.dbias[j] + dbias : dbias;
  const std::size_t counted = s.counted_rows();
  const double share = counted > 0 ? 1.0 / static_cast<double>(counted) : 0.0;
  const auto rstd = static_cast<double>(s.rstd[j]);
  const double of_dy = static_cast<double>(s.gain[j]) * rstd;
  const double of_x = -of_dy * rstd * sums.second * share;
  s.factors[j] = static_cast<float>(of_dy);
  s.factors[s.channels + j] = static_cast<float>(of_x);
  s.factors[2 * s.channels + j] =
      static_cast<float>(-of_dy * sums.first * share - of_x * static_cast<double>(s.mean[j]));
}

// out = a p + b q + c, with factors by column. With q, padding becomes zero.
template <typename T, int N>
__global__ void combine_kernel(BatchNormForward s, const T* p, const T* q, T* out) {
  const std::size_t begin = thread_index() * N;
  if (begin >= s.rows * s.channels) return;
  const float* const of_column = s.factors + begin % s.channels;
  float v[N] = {}, a[N], b[N], more[N];
  if (q == nullptr || begin / s.channels < s.counted_rows()) {
    load(p + begin, v);
    load(of_column, a);
    load(of_column + 2 * s.channels, b);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = fmaf(v[i], a[i], b[i]);
    if (q != nullptr) {
      load(q + begin, more);
      load(of_column + s.channels, b);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = fmaf(more[i], b[i], v[i]);
    }
  }
  store(v, out + begin);
}

unsigned blocks_of(std::size_t threads) {
  return static_cast<unsigned>(ceil_div<std::size_t>(threads, kThreads));
}

// Rows of few packs share a warp.
template <int N, typename T>
void sum_moments(NativeStream stream, const BatchNormForward& s, const T* dy) {
  const auto packs = static_cast<unsigned>(s.channels / N);
  const unsigned across = std::min<unsigned>(std::bit_ceil(packs), kWarpSize);
  const dim3 blocks(ceil_div(packs, across), static_cast<unsigned>(s.parts()));
  moments_kernel<T, N><<<blocks, dim3(across, kThreads / across), 0, native(stream)>>>(s, dy);
}

template <int N, typename T>
void combine(NativeStream stream, const BatchNormForward& s, const T* p, const T* q, void* out) {
  combine_kernel<T, N>
      <<<blocks_of(s.rows * s.channels / N), kThreads, 0, native(stream)>>>(s, p, q, as<T>(out));
}

}  // namespace

void batch_norm(NativeStream stream, const BatchNormForward& s) {
  visit_packed(s.dtype, s.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    const T* const none = nullptr;
    if (s.is_training) sum_moments<kPack>(stream, s, none);
    statistics_kernel<T><<<blocks_of(s.channels), kThreads, 0, native(stream)>>>(s, s.parts());
    combine<kPack>(stream, s, as<T>(s.x), none, s.y);
  });
  check_launch("batch_norm");
}

void batch_norm_backward(NativeStream stream, const BatchNormBackward& b) {
  const BatchNormForward& s = b.of;
  visit_packed(s.dtype, s.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    sum_moments<kPack>(stream, s, as<T>(b.dy));
    slopes_kernel<<<blocks_of(s.channels), kThreads, 0, native(stream)>>>(b, s.parts());
    combine<kPack>(stream, s, as<T>(b.dy), as<T>(s.x), b.dx);
  });
  check_launch("batch_norm_backward");
}

}  // namespace kolo::trainer::cuda
