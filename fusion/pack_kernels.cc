#include "fusion/pack_kernels.h"

#include <cstring>

#include "fusion/segment_overlap.h"

namespace kolo {
namespace {

std::byte* element(const BufferView& range, std::size_t index) {
  return static_cast<std::byte*>(range.data) + index * size_of(range.dtype);
}

}  // namespace

void pack(std::span<const Segment> segments, const BufferView& range, std::size_t begin,
          double scale, Stores stores) {
  const std::size_t end = begin + range.count;
  const auto zero = [&](std::size_t first, std::size_t last) {
    if (first == last) return;
    std::memset(element(range, first - begin), 0, (last - first) * size_of(range.dtype));
  };
  std::size_t packed_to = begin;
  for_each_overlap(segments, begin, end,
                   [&](const Segment& segment, std::size_t first, std::size_t last) {
                     zero(packed_to, first);
                     convert(range.dtype, element(range, first - begin), segment.dtype,
                             segment.source_at(first), last - first, scale, stores);
                     packed_to = last;
                   });
  zero(packed_to, end);
}

void unpack(std::span<const Segment> segments, const BufferView& range, std::size_t begin,
            double scale, Stores stores) {
  for_each_overlap(segments, begin, begin + range.count,
                   [&](const Segment& segment, std::size_t first, std::size_t last) {
                     if (segment.stays()) return;
                     convert(segment.dtype, segment.at(first), range.dtype,
                             element(range, first - begin), last - first, scale, stores);
                   });
}

}  // namespace kolo
