#include "trainer/cuda/kernels/filter.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void pack_filter_kernel(FilterShape shape, const float* parameter, T* packed) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= shape.packed_count()) return;
  const bool is_padding = shape.input_of(i) >= shape.inputs;
  packed[i] = round_to<T>(is_padding ? 0.0f : parameter[shape.parameter_index(i)]);
}

template <typename T>
__global__ void unpack_filter_kernel(FilterShape shape, const T* packed, float* parameter) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= shape.packed_count() || shape.input_of(i) >= shape.inputs) return;
  parameter[shape.parameter_index(i)] = widen(packed[i]);
}

unsigned blocks_of(const FilterShape& shape) {
  return static_cast<unsigned>(ceil_div<std::size_t>(shape.packed_count(), kThreads));
}

}  // namespace

void pack_filter(NativeStream stream, const FilterShape& shape, const float* parameter, DType dtype,
                 void* packed) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    pack_filter_kernel<<<blocks_of(shape), kThreads, 0, native(stream)>>>(shape, parameter,
                                                                          as<T>(packed));
  });
  check_launch("pack_filter");
}

void unpack_filter(NativeStream stream, const FilterShape& shape, DType dtype, const void* packed,
                   float* parameter) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    unpack_filter_kernel<<<blocks_of(shape), kThreads, 0, native(stream)>>>(shape, as<T>(packed),
                                                                            parameter);
  });
  check_launch("unpack_filter");
}

}  // namespace kolo::trainer::cuda
