#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "comm/kernels/host_device.h"

/// Index arithmetic for the memory accesses of kernels. Pure; tested on the processor.
namespace kolo::access {

/// Widest load and store of a GPU thread, in bytes.
inline constexpr std::size_t kBytes = 16;

/// A split of an array into groups of elements that start at multiples of kBytes, with single
/// elements before and after the groups. For 11 floats in groups of 4, at an address one float
/// after such a multiple:
///
///     element   0 1 2 | 3 4 5 6 | 7 8 9 10 |
///     part      head  | group   | group    | tail (none)
struct Split {
  std::size_t head = 0;  ///< Elements before the groups.
  std::size_t groups = 0;
  std::size_t tail = 0;  ///< Elements after the groups.
};

/// Splits `count` elements at `address` into groups of `group` elements. `address` must be a
/// multiple of `element_bytes`, which divides kBytes.
KOLO_HOST_DEVICE constexpr Split split(std::uintptr_t address, std::size_t element_bytes,
                                       std::size_t group, std::size_t count) {
  if (group == 1) return {0, count, 0};
  const std::size_t ahead = (kBytes - address % kBytes) % kBytes / element_bytes;
  const std::size_t head = ahead < count ? ahead : count;
  const std::size_t groups = (count - head) / group;
  return {head, groups, count - head - groups * group};
}

/// Array index of the i-th single element of a split, counting the head first and then the tail.
KOLO_HOST_DEVICE constexpr std::size_t single(const Split& split, std::size_t group,
                                              std::size_t i) {
  return i < split.head ? i : i + split.groups * group;
}

KOLO_HOST_DEVICE constexpr bool is_aligned(std::uintptr_t address, std::size_t bytes) {
  return address % bytes == 0;
}

/// Bytes of the widest aligned access, at most kBytes, for addresses and strides whose bitwise OR
/// is `bits`.
constexpr std::size_t widest(std::uintptr_t bits) {
  return std::size_t{1} << std::countr_zero(bits | kBytes);
}

/// Number of blocks of a launch whose blocks share `work` units round-robin: at most
/// `resident_blocks`, the number that the device runs at once.
constexpr unsigned grid_blocks(std::size_t work, std::size_t resident_blocks) {
  return static_cast<unsigned>(std::min(work, resident_blocks));
}

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace kolo::access
