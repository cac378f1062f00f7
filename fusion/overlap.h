#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace kolo {

/// A range of memory that a call reads or writes for its argument number `index`.
struct UsedMemory {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  std::size_t index = 0;
  bool is_written = true;
};

/// Removes repeated ranges: equal addresses, sizes and `is_written`.
void drop_repeated(std::vector<UsedMemory>& ranges);

/// Returns the arguments of two overlapping ranges of which at least one is written, in ascending
/// order; nothing if there are none. Cost: sorting.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::vector<UsedMemory> ranges);

}  // namespace kolo
