#include "trainer/cuda/kernels/layouts.h"

#include <cstdint>

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;

// Copies do not interpret values, so these kernels move units of 2, 4 or 16 bytes.
template <typename Unit>
__global__ void split_kernel(HeadShape shape, const Unit* joined, Unit* split) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < shape.count()) split[i] = joined[shape.joined_index(i)];
}

template <typename Unit>
__global__ void join_kernel(HeadShape shape, const Unit* split, Unit* joined) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < shape.count()) joined[shape.joined_index(i)] = split[i];
}

// Calls body(Unit{}, shape in units) with the largest unit that divides a head's row.
template <typename Body>
void visit_unit(DType dtype, HeadShape shape, Body&& body) {
  const std::size_t head_bytes = shape.head_width * size_of(dtype);
  if (head_bytes % sizeof(uint4) == 0) {
    shape.head_width = head_bytes / sizeof(uint4);
    body(uint4{}, shape);
  } else if (size_of(dtype) == sizeof(std::uint32_t)) {
    body(std::uint32_t{}, shape);
  } else {
    body(std::uint16_t{}, shape);
  }
}

unsigned blocks_of(const HeadShape& shape) {
  return static_cast<unsigned>(ceil_div<std::size_t>(shape.count(), kThreads));
}

template <typename T>
__global__ void pack_filter_kernel(FilterShape shape, const float* parameter, T* packed) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= shape.packed_count()) return;
  const bool is_padding = shape.input_of(i) >= shape.inputs;
  packed[i] = round_to<T>(is_padding ? 0.0f : parameter[shape.parameter_index(i)]);
}

template <typename T>
__global__ void unpack_filter_kernel(FilterShape shape, const T* packed, bool adds,
                                     float* parameter) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= shape.packed_count() || shape.input_of(i) >= shape.inputs) return;
  float& gradient = parameter[shape.parameter_index(i)];
  gradient = adds ? gradient + widen(packed[i]) : widen(packed[i]);
}

unsigned blocks_of(const FilterShape& shape) {
  return static_cast<unsigned>(ceil_div<std::size_t>(shape.packed_count(), kThreads));
}

}  // namespace

void split_heads(NativeStream stream, DType dtype, const HeadShape& shape, const void* joined,
                 void* split) {
  visit_unit(dtype, shape, [&](auto unit, const HeadShape& units) {
    using Unit = decltype(unit);
    split_kernel<<<blocks_of(units), kThreads, 0, native(stream)>>>(units, as<Unit>(joined),
                                                                    as<Unit>(split));
  });
  check_launch("split_heads");
}

void join_heads(NativeStream stream, DType dtype, const HeadShape& shape, const void* split,
                void* joined) {
  visit_unit(dtype, shape, [&](auto unit, const HeadShape& units) {
    using Unit = decltype(unit);
    join_kernel<<<blocks_of(units), kThreads, 0, native(stream)>>>(units, as<Unit>(split),
                                                                   as<Unit>(joined));
  });
  check_launch("join_heads");
}

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
                   Into mode, float* parameter) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    unpack_filter_kernel<<<blocks_of(shape), kThreads, 0, native(stream)>>>(
        shape, as<T>(packed), mode == Into::kAdd, parameter);
  });
  check_launch("unpack_filter");
}

}  // namespace kolo::trainer::cuda
