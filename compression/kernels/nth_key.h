#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo::radix {

/// The k-th largest of the keys of some values, counting equal ones one by one.
struct NthKey {
  std::uint32_t key = 0;
  std::size_t need = 0;   ///< How many of the values with this key are among the k largest.
  std::size_t equal = 0;  ///< How many have it.
};

/// Histograms from a coarse to a fine digit above `floor`, then sorts the few in the last one.
///
/// Before:  1 <= k <= values.size(); no value's key is below `floor`, and the answer is expected
///          within four octaves above it (elsewhere costs one pass more).
/// Threads: pure; any. `keys` is scratch memory, whose contents do not matter.
/// Cost:    two passes over the values, most times.
NthKey nth_largest_key(std::span<const float> values, std::size_t k, std::uint32_t floor,
                       std::vector<std::uint32_t>& keys);

}  // namespace kolo::radix
