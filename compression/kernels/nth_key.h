#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/kernels/radix_key.h"

namespace kolo::radix {

/// The k-th largest key of some values; equal keys count separately.
struct NthKey {
  std::uint32_t key = 0;
  std::size_t need = 0;       ///< Number of values with this key that are among the k largest.
  std::size_t equal = 0;      ///< Number of values with this key.
  std::uint32_t largest = 0;  ///< The largest of all keys.
};

/// Finds the k-th largest key by bisection: counts the keys above the middle of a range, and
/// occasionally removes the keys outside the range. No branch depends on a single key.
///
/// Before:  1 <= k <= values.size(); no value's key is below `floor`.
/// Threads: pure; any. `keys` is scratch memory, whose content does not matter; it grows to
///          values.size() + kKeySlack. The result does not depend on the instruction set.
/// Cost:    4 bytes written per value, usually about 20 bytes read; at most 31 passes.
NthKey nth_largest_key(std::span<const float> values, std::size_t k, std::uint32_t floor,
                       std::vector<std::uint32_t>& keys);
inline constexpr std::size_t kKeySlack = 64;

}  // namespace kolo::radix
