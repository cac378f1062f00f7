#include "trainer/cuda/kernels/cast.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;
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

}  // namespace

void cast(NativeStream stream, const float* from, std::size_t count, DType dtype, void* into) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(count, kThreads * kPerThread));
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    cast_kernel<T><<<blocks, kThreads, 0, native(stream)>>>(from, count, as<T>(into));
  });
  check_launch("cast");
}

}  // namespace kolo::trainer::cuda
