#include "trainer/cuda/kernels/activation.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/portable.h"

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
                                           std::size_t packs, T* gradient) {
  const std::size_t pack = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  float v[N];
  float g[N];
  load(before + pack * N, v);
  load(gradient + pack * N, g);
#pragma unroll
  for (int i = 0; i < N; ++i) g[i] *= slope(activation, v[i]);
  store(g, gradient + pack * N);
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
                         const void* before, std::size_t count, void* gradient) {
  visit_packed(dtype, count, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int kPack = decltype(pack)::value;
    const std::size_t packs = count / kPack;
    const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(packs, kThreads));
    activation_backward_kernel<T, kPack><<<blocks, kThreads, 0, native(stream)>>>(
        activation, as<T>(before), packs, as<T>(gradient));
  });
  check_launch("activation_backward");
}

}  // namespace kolo::trainer::cuda
