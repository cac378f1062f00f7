#include "fusion/pack_kernels.h"

#include <algorithm>
#include <cstring>

#include "comm/base/check.h"

namespace kolo {
namespace {

std::byte* element(void* data, DType dtype, std::size_t index) {
  return static_cast<std::byte*>(data) + index * size_of(dtype);
}

// Calls `overlap(segment, first, last)` for every segment that has bucket elements [first, last) in
// [begin, end), in order.
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

}  // namespace

void pack(std::span<const Segment> segments, const BufferView& range, std::size_t begin,
          double scale) {
  const std::size_t end = begin + range.count;
  const auto zero = [&](std::size_t first, std::size_t last) {
    if (first == last) return;
    std::memset(element(range.data, range.dtype, first - begin), 0,
                (last - first) * size_of(range.dtype));
  };
  std::size_t packed_to = begin;
  for_each_overlap(
      segments, begin, end, [&](const Segment& segment, std::size_t first, std::size_t last) {
        zero(packed_to, first);
        convert(range.dtype, element(range.data, range.dtype, first - begin), segment.dtype,
                element(segment.data, segment.dtype, first - segment.offset), last - first, scale);
        packed_to = last;
      });
  zero(packed_to, end);
}

void unpack(std::span<const Segment> segments, const BufferView& range, std::size_t begin,
            double scale, Stores stores) {
  for_each_overlap(segments, begin, begin + range.count,
                   [&](const Segment& segment, std::size_t first, std::size_t last) {
                     convert(segment.dtype,
                             element(segment.data, segment.dtype, first - segment.offset),
                             range.dtype, element(range.data, range.dtype, first - begin),
                             last - first, scale, stores);
                   });
}

}  // namespace kolo
