#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace kolo {

/// Memory that a call uses, as part of its argument number `index`.
struct UsedMemory {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  std::size_t index = 0;
  bool is_written = true;
};

/// Leaves each range once that is there several times, bytes and use alike.
void drop_repeated(std::vector<UsedMemory>& ranges);

/// The arguments of two ranges that have a byte in common, one of which is written, in ascending
/// order; empty if there are none. Cost: that of sorting.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::vector<UsedMemory> ranges);

}  // namespace kolo
