#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tests/support/cuda_emulator/block.h"
#include "tests/support/cuda_emulator/device.h"
#include "tests/support/cuda_emulator/include/cuda_runtime_api.h"

/// The names predefined by nvcc that the kernels use. `translate.py` includes this file in each .cu
/// and .cuh file, and rewrites launches, shared variables and casts into calls of the functions
/// below.

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

#define threadIdx (::kolo::emulator::Block::current().position().thread)
#define blockIdx (::kolo::emulator::Block::current().position().block)
#define blockDim (::kolo::emulator::Block::current().position().block_size)
#define gridDim (::kolo::emulator::Block::current().position().grid_size)

namespace kolo::emulator {

/// Launches a kernel: `kernel<<<grid, block, shared, stream>>>(arguments)` becomes `Call{grid,
/// block, shared, stream}.of(kernel)(arguments)`. Every thread gets copies of the arguments.
struct Call {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  void* stream = nullptr;

  template <typename Kernel>
  auto of(const Kernel& kernel) const {
    return [call = *this, kernel](auto... arguments) {
      Device::current().run({.grid = call.grid,
                             .block = call.block,
                             .shared_bytes = call.shared_bytes,
                             .thread = [&] { kernel(arguments...); }});
    };
  }
};

/// Returns the block's shared variable that `key` identifies.
template <typename T>
T& shared(const char& key) {
  return *static_cast<T*>(Block::current().shared().variable(&key, sizeof(T)));
}

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(Block::current().shared().dynamic());
}

/// Casts like reinterpret_cast, but checks that the pointer is aligned for its new type. A GPU
/// would trap at an unaligned access.
template <typename To, typename From>
To aligned_cast(From from, const Place& where = Place::here()) {
  if constexpr (std::is_pointer_v<From> && std::is_pointer_v<To>) {
    using Pointee = std::remove_pointer_t<To>;
    if (reinterpret_cast<std::uintptr_t>(from) % alignof(Pointee) != 0) {
      throw Fault(where.describe() + ": the pointer is not aligned to " +
                  std::to_string(alignof(Pointee)) + " bytes");
    }
  }
  return reinterpret_cast<To>(from);
}

/// Lanes exchange values of up to 8 bytes, which these functions convert to and from 64 bits.
template <typename T>
std::uint64_t to_word(const T& value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

template <typename T>
T from_word(std::uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace kolo::emulator

// The barriers and exchanges of CUDA.

inline void __syncthreads(const kolo::emulator::Place& where = kolo::emulator::Place::here()) {
  kolo::emulator::Block::current().sync_threads(where);
}

inline unsigned __ballot_sync(unsigned mask, bool is_set,
                              const kolo::emulator::Place& where = kolo::emulator::Place::here()) {
  const auto lanes = kolo::emulator::Block::current().exchange(mask, is_set, where);
  unsigned ballot = 0;
  for (unsigned i = 0; i < lanes.size(); ++i) ballot |= static_cast<unsigned>(lanes[i]) << i;
  return ballot;
}

inline int __any_sync(unsigned mask, bool is_set,
                      const kolo::emulator::Place& where = kolo::emulator::Place::here()) {
  return __ballot_sync(mask, is_set, where) != 0;
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance,
                  const kolo::emulator::Place& where = kolo::emulator::Place::here()) {
  auto& block = kolo::emulator::Block::current();
  const auto lanes = block.exchange(mask, kolo::emulator::to_word(value), where);
  return kolo::emulator::from_word<T>(lanes[block.lane() ^ static_cast<unsigned>(distance)]);
}

inline int __popc(unsigned value) { return __builtin_popcount(value); }

// One processor thread runs all threads of a kernel, so memory accesses are in order, and no other
// thread interrupts an atomic operation.

inline void __threadfence() {}

inline std::uint32_t atomicAdd(std::uint32_t* at, std::uint32_t value) {
  return std::exchange(*at, *at + value);
}

template <typename T>
T __ldcg(const T* from) {
  return *from;
}

template <typename T>
void __stcg(T* to, T value) {
  *to = value;
}

inline unsigned min(unsigned a, unsigned b) { return std::min(a, b); }
