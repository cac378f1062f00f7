#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "comm/base/check.h"
#include "fusion/pack_kernels.h"

namespace kolo {

/// Calls `overlap(segment, first, last)`, in order, for every segment that has bucket elements
/// [first, last) in [begin, end). Errors: UsageError if two of them are out of order or overlap.
template <typename Overlap>
void for_each_overlap(std::span<const Segment> segments, std::size_t begin, std::size_t end,
                      Overlap overlap) {
  const auto ends_before = [](const Segment& segment, std::size_t position) {
    return segment.offset + segment.count <= position;
  };
  auto segment = std::lower_bound(segments.begin(), segments.end(), begin, ends_before);
  std::size_t cursor = begin;
  for (; segment != segments.end() && segment->offset < end; ++segment) {
    const std::size_t first = std::max(segment->offset, begin);
    const std::size_t last = std::min(segment->offset + segment->count, end);
    check(first >= cursor, "segments of a bucket must be sorted and must not overlap");
    if (first < last) overlap(*segment, first, last);
    cursor = last;
  }
}

}  // namespace kolo
