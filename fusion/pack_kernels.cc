#include "fusion/pack_kernels.h"

#include <algorithm>
#include <cstring>

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

void SegmentPacker::rebind(std::size_t index, void* data, const void* input) {
  segments_.at(index).data = data;
  segments_.at(index).input = input;
}

void SegmentPacker::pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) {
  kolo::pack(segments_, {bucket, count, dtype_}, offset, scale_, stores);
}

void SegmentPacker::unpack(std::size_t offset, std::size_t count, const void* bucket,
                           Stores stores) {
  // BufferView has no const form, and unpack only reads the bucket.
  kolo::unpack(segments_, {const_cast<void*>(bucket), count, dtype_}, offset, 1.0, stores);
}

Packer::Piece SegmentPacker::piece(std::size_t offset, std::size_t count) {
  const auto next = std::partition_point(
      segments_.begin(), segments_.end(),
      [&](const Segment& segment) { return segment.offset + segment.count <= offset; });
  if (next == segments_.end()) return {.count = count};
  if (offset < next->offset) return {.count = std::min(count, next->offset - offset)};
  const std::size_t inside = offset - next->offset;
  return {.data = next->data != nullptr ? next->at(offset) : nullptr,
          .input = next->source_at(offset),
          .count = std::min(count, next->count - inside)};
}

}  // namespace kolo
