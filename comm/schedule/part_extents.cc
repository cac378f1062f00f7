#include "comm/schedule/part_extents.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace kolo {

PartExtents::PartExtents(std::span<const std::size_t> counts, std::size_t times)
    : parts_(counts.size()) {
  if (std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end()) {
    each_ = counts.empty() ? 0 : times * counts.front();
    return;
  }
  std::vector<std::size_t> ends;
  ends.reserve(counts.size());
  for (const std::size_t count : counts) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + times * count);
  }
  ends_ = std::make_shared<const std::vector<std::size_t>>(std::move(ends));
}

}  // namespace kolo
