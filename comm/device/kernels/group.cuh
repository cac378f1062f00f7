#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "comm/device/kernels/access.h"

namespace kolo {

/// Elements that a thread loads, computes and stores together: a single one, or several of 4, 8 or
/// 16 bytes in total.
template <typename T, int kCount>
struct Group {
  static constexpr std::size_t kBytes = sizeof(T) * kCount;
  static constexpr bool kWide = kCount > 1;
  static_assert(!kWide || kBytes == 4 || kBytes == 8 || kBytes == 16);
  using Word =
      std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, unsigned>>;
  T values[kCount];
};

inline __device__ std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Loads a group in one access that bypasses the L1 cache. `from` is a multiple of the group's
/// bytes.
template <typename T, int kCount>
__device__ Group<T, kCount> load_wide(const T* from) {
  const auto word = __ldcg(reinterpret_cast<const typename Group<T, kCount>::Word*>(from));
  Group<T, kCount> group;
  memcpy(group.values, &word, sizeof(word));
  return group;
}

/// Loads the groups at from, from + stride, ... within the next `left` elements, all in flight at
/// once. `stride` counts elements and must be a multiple of kCount; `from` may be unaligned.
template <typename T, int kCount, int kUnroll>
__device__ void load(Group<T, kCount> (&groups)[kUnroll], const T* from, std::size_t stride,
                     std::size_t left) {
  if constexpr (Group<T, kCount>::kWide) {
    if (access::is_aligned(address(from), Group<T, kCount>::kBytes)) {
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

/// Stores a group at `to`, which must be a multiple of the group's bytes.
template <typename T, int kCount>
__device__ void store(T* to, const Group<T, kCount>& group) {
  if constexpr (Group<T, kCount>::kWide) {
    typename Group<T, kCount>::Word word;
    memcpy(&word, group.values, sizeof(word));
    __stcg(reinterpret_cast<typename Group<T, kCount>::Word*>(to), word);
  } else {
    *to = group.values[0];
  }
}

}  // namespace kolo
