#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo::radix {

/// The k-th largest of the keys of some values, counting equal ones one by one.
struct NthKey {
  std::uint32_t key = 0;
  std::size_t need = 0;       ///< How many of the values with this key are among the k largest.
  std::size_t equal = 0;      ///< How many have it.
  std::uint32_t largest = 0;  ///< Of all keys.
};

/// Halves the range that the key lies in, by counting how many keys are above its middle, and now
/// and then drops the keys that have left it. Nothing branches on a single key.
///
/// Before:  1 <= k <= values.size(); no value's key is below `floor`.
/// Threads: pure; any. `keys` is scratch memory, whose contents do not matter; it grows to
///          values.size() + kKeySlack. The result does not depend on the instruction set.
/// Cost:    4 bytes written per value, and on the whole about five times as many read, most times;
///          31 times at most.
NthKey nth_largest_key(std::span<const float> values, std::size_t k, std::uint32_t floor,
                       std::vector<std::uint32_t>& keys);
inline constexpr std::size_t kKeySlack = 64;

}  // namespace kolo::radix
