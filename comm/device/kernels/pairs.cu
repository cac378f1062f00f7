#include <cstdint>
#include <type_traits>

#include "comm/base/visit_dtype.h"
#include "comm/device/kernels/element.h"
#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/launch.cuh"

namespace kolo {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    subtract(const std::int64_t* indices, const float* values, std::size_t count, float* residual,
             float* velocity) {
  const std::size_t threads = gridDim.x * std::size_t{kThreads};
  for (std::size_t j = blockIdx.x * std::size_t{kThreads} + threadIdx.x; j < count; j += threads) {
    const std::int64_t i = indices[j];
    residual[i] -= values[j];
    if (velocity != nullptr) velocity[i] = 0.0f;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    look(const T* data, std::size_t count, std::uint32_t* non_finite) {
  const std::size_t threads = gridDim.x * std::size_t{kThreads};
  bool bad = false;
  for (std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x; i < count; i += threads) {
    bad |= element::non_finite(data[i]);
  }
  if (bad) *non_finite = 1;  // all writers write the same value
}

}  // namespace

void launch_subtract_pairs(Span<const std::int64_t> indices, const float* values, float* residual,
                           float* velocity, void* cuda_stream) {
  gpu::launch("subtraction of pairs", subtract, kThreads,
              access::ceil_divide(indices.size(), kThreads), static_cast<cudaStream_t>(cuda_stream),
              indices.data(), values, indices.size(), residual, velocity);
}

void launch_find_non_finite(DType dtype, const void* data, std::size_t count,
                            std::uint32_t* non_finite, void* cuda_stream) {
  constexpr std::size_t kShare = 8;  // elements of a thread
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    gpu::launch("search for numbers that are not finite", look<T>, kThreads,
                access::ceil_divide(count, kThreads * kShare),
                static_cast<cudaStream_t>(cuda_stream), static_cast<const T*>(data), count,
                non_finite);
  });
}

void load_pairs() {
  launch_subtract_pairs({}, nullptr, nullptr, nullptr, nullptr);
  for (const DType dtype : kNumberDTypes) {
    launch_find_non_finite(dtype, nullptr, 0, nullptr, nullptr);
  }
}

}  // namespace kolo
