#include "trainer/cuda/kernels/elementwise.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int N>
__global__ void bias_activation_kernel(Activation activation, std::size_t packs, std::size_t width,
                                       const T* x, const float* bias, T* before, T* y) {
  const std::size_t pack = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::size_t begin = pack * N;
  float v[N];
  load(x + begin, v);
  if (bias != nullptr) {
    float added[N];
    load(bias + begin % width, added);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += added[i];
  }
  if (before != nullptr) store(v, before + begin);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = activate(activation, v[i]);
  store(v, y + begin);
}

template <typename T, int N>
__global__ void activation_backward_kernel(Activation activation, const T* before,
                                           std::size_t packs, const T* dy, T* dx) {
  const std::size_t pack = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  float v[N];
  float g[N];
  load(before + pack * N, v);
  load(dy + pack * N, g);
#pragma unroll
  for (int i = 0; i < N; ++i) g[i] *= slope(activation, v[i]);
  store(g, dx + pack * N);
}

template <typename T, int N>
__global__ void add_kernel(std::size_t packs, const T* a, const T* b, T* y) {
  const std::size_t pack = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  float sum[N];
  float other[N];
  load(a + pack * N, sum);
  load(b + pack * N, other);
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] += other[i];
  store(sum, y + pack * N);
}

constexpr int kPerThread = 4;

template <typename T>
__global__ void cast_kernel(const float* from, std::size_t count, T* into) {
  const std::size_t begin =
      (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (begin + kPerThread <= count) {
    float values[kPerThread];
    load(from + begin, values);
    store(values, into + begin);
  } else {
    for (std::size_t i = begin; i < count; ++i) into[i] = round_to<T>(from[i]);
  }
}

template <typename T>
__global__ void scale_pixels_kernel(const std::uint8_t* bytes, const float* table,
                                    std::size_t elements, std::size_t image_channels,
                                    std::size_t channels, T* into) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::size_t channel = i % channels;
  const bool is_padding = channel >= image_channels;
  into[i] = round_to<T>(is_padding ? 0.0f : table[bytes[i / channels * image_channels + channel]]);
}

}  // namespace

void bias_activation(NativeStream stream, const BiasActivation& s) {
  visit_packed(s.dtype, s.width, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    const std::size_t packs = s.rows * s.width / kPack;
    const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(packs, kThreads));
    bias_activation_kernel<T, kPack><<<blocks, kThreads, 0, native(stream)>>>(
        s.activation, packs, s.width, as<T>(s.x), s.bias, as<T>(s.before), as<T>(s.y));
  });
  check_launch("bias_activation");
}

void activation_backward(NativeStream stream, Activation activation, DType dtype,
                         const void* before, std::size_t count, const void* dy, void* dx) {
  visit_packed(dtype, count, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    const std::size_t packs = count / kPack;
    const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(packs, kThreads));
    activation_backward_kernel<T, kPack><<<blocks, kThreads, 0, native(stream)>>>(
        activation, as<T>(before), packs, as<T>(dy), as<T>(dx));
  });
  check_launch("activation_backward");
}

void add_elements(NativeStream stream, DType dtype, std::size_t count, const void* a, const void* b,
                  void* y) {
  visit_packed(dtype, count, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    const std::size_t packs = count / kPack;
    const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(packs, kThreads));
    add_kernel<T, kPack>
        <<<blocks, kThreads, 0, native(stream)>>>(packs, as<T>(a), as<T>(b), as<T>(y));
  });
  check_launch("add_elements");
}

void cast(NativeStream stream, const float* from, std::size_t count, DType dtype, void* into) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(count, kThreads * kPerThread));
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    cast_kernel<T><<<blocks, kThreads, 0, native(stream)>>>(from, count, as<T>(into));
  });
  check_launch("cast");
}

void scale_pixels(NativeStream stream, const PixelCast& p) {
  const std::size_t elements = p.count * p.channels;
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(elements, kThreads));
  visit_element(p.dtype, [&](auto element) {
    using T = decltype(element);
    scale_pixels_kernel<T><<<blocks, kThreads, 0, native(stream)>>>(
        p.bytes, p.table, elements, p.image_channels, p.channels, as<T>(p.into));
  });
  check_launch("scale_pixels");
}

}  // namespace kolo::trainer::cuda
