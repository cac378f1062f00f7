#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/device/kernels/access.h"

namespace kolo {

/// Elements that a thread loads, computes and stores together.
template <typename T, int kCount>
struct Group {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * kCount;
  static constexpr bool kWide = kBytes % static_cast<int>(access::kBytes) == 0;
  T values[kCount];
};

inline __device__ std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// A group at a multiple of 16 bytes, accessed 16 bytes at a time. Data that is used once bypasses
/// the first cache.
template <typename T, int kCount>
__device__ Group<T, kCount> load_wide(const T* from) {
  uint4 words[Group<T, kCount>::kBytes / sizeof(uint4)];
#pragma unroll
  for (std::size_t i = 0; i < sizeof(words) / sizeof(uint4); ++i) {
    words[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
  }
  Group<T, kCount> group;
  memcpy(group.values, words, sizeof(words));
  return group;
}

/// Loads the groups at from, from + stride, ... that lie in the next `left` elements, all in flight
/// together. `stride` is a multiple of 16 bytes; `from` need not be.
/// element.
template <typename T, int kCount, int kUnroll>
__device__ void load(Group<T, kCount> (&groups)[kUnroll], const T* from, std::size_t stride,
                     std::size_t left) {
  if constexpr (Group<T, kCount>::kWide) {
    if (access::is_aligned(address(from))) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (u * stride < left) groups[u] = load_wide<T, kCount>(from + u * stride);
      }
      return;
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (u * stride >= left) break;
#pragma unroll
    for (int i = 0; i < kCount; ++i) groups[u].values[i] = from[u * stride + i];
  }
}

/// Stores to a multiple of 16 bytes, or a single element.
template <typename T, int kCount>
__device__ void store(T* to, const Group<T, kCount>& group) {
  if constexpr (Group<T, kCount>::kWide) {
    uint4 words[Group<T, kCount>::kBytes / sizeof(uint4)];
    memcpy(words, group.values, sizeof(words));
#pragma unroll
    for (std::size_t i = 0; i < sizeof(words) / sizeof(uint4); ++i) {
      __stcg(reinterpret_cast<uint4*>(to) + i, words[i]);
    }
  } else {
    static_assert(kCount == 1);
    *to = group.values[0];
  }
}

}  // namespace kolo
