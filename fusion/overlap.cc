#include "fusion/overlap.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>

namespace kolo {
namespace {

const std::byte* begin_of(const UsedMemory& range) {
  return static_cast<const std::byte*>(range.begin);
}

const std::byte* end_of(const UsedMemory& range) { return begin_of(range) + range.bytes; }

/// Returns the range that ends later.
const UsedMemory* further(const UsedMemory* one, const UsedMemory& other) {
  return one != nullptr && std::greater_equal<>()(end_of(*one), end_of(other)) ? one : &other;
}

auto key_of(const UsedMemory& range) {
  return std::tuple(reinterpret_cast<std::uintptr_t>(range.begin), range.bytes, range.is_written);
}

}  // namespace

void drop_repeated(std::vector<UsedMemory>& ranges) {
  std::ranges::sort(ranges, {}, key_of);
  const auto are_equal = [](const UsedMemory& one, const UsedMemory& other) {
    return key_of(one) == key_of(other);
  };
  ranges.erase(std::unique(ranges.begin(), ranges.end(), are_equal), ranges.end());
}

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::vector<UsedMemory> ranges) {
  std::erase_if(ranges, [](const UsedMemory& range) { return range.bytes == 0; });
  std::ranges::sort(ranges, std::less<>(), begin_of);
  // If any earlier range overlaps the next one, the earlier range that ends last does.
  const UsedMemory* furthest = nullptr;
  const UsedMemory* furthest_written = nullptr;
  for (const UsedMemory& range : ranges) {
    const UsedMemory* const before = range.is_written ? furthest : furthest_written;
    if (before != nullptr && std::less<>()(begin_of(range), end_of(*before))) {
      return std::minmax({before->index, range.index});
    }
    furthest = further(furthest, range);
    if (range.is_written) furthest_written = further(furthest_written, range);
  }
  return std::nullopt;
}

}  // namespace kolo
