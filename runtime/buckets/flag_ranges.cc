#include "runtime/buckets/flag_ranges.h"

#include <algorithm>

namespace kolo {

std::optional<FlagRanges::Range> FlagRanges::take(std::uint32_t count, Use use) {
  std::uint32_t first = 0;
  for (std::uint32_t next = 0; next < flags_.size() && next - first < count; ++next) {
    const Flag& flag = flags_[next];
    if (flag.is_taken || flag.use.value_or(use) != use) first = next + 1;
  }
  if (limit_ - first < count) return std::nullopt;
  flags_.resize(std::max<std::size_t>(flags_.size(), first + count));
  Range range{.first = first};
  for (std::uint32_t i = first; i < first + count; ++i) {
    range.raised_to = std::max(range.raised_to, flags_[i].raised_to);
    flags_[i].is_taken = true;
    flags_[i].use = use;
  }
  return range;
}

void FlagRanges::give_back(std::uint32_t first, std::uint32_t count, std::uint64_t raised_to) {
  for (std::uint32_t i = first; i < first + count; ++i) {
    flags_[i].is_taken = false;
    flags_[i].raised_to = std::max(flags_[i].raised_to, raised_to);
  }
}

}  // namespace kolo
