#include "fusion/segment_packer.h"

#include <algorithm>

namespace kolo {

void SegmentPacker::rebind(std::size_t index, void* data, const void* input) {
  segments_.at(index).data = data;
  segments_.at(index).input = input;
}

void SegmentPacker::pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) {
  kolo::pack(segments_, {bucket, count, dtype_}, offset, scale_, stores);
}

void SegmentPacker::unpack(std::size_t offset, std::size_t count, const void* bucket,
                           Stores stores) {
  // BufferView has no const form; unpack only reads it.
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
