#include "comm/collective/chunking.h"

#include <algorithm>

namespace kolo {

Extent part_of(Extent whole, std::size_t parts, std::size_t index, DType dtype) {
  const std::size_t unit = kWireAlignment / size_of(dtype);
  const auto units_before = [unit](std::size_t element) { return (element + unit - 1) / unit; };
  // Cut points are whole units of the bucket; the first and the last are the extent's own ends.
  const std::size_t first = units_before(whole.offset);
  const std::size_t last = std::max(first, units_before(whole.end()));
  const std::size_t units = last - first;
  const auto cut = [&](std::size_t i) -> std::size_t {
    if (i == 0) return whole.offset;
    if (i == parts) return whole.end();
    const std::size_t before = units / parts * i + std::min(units % parts, i);
    return std::clamp((first + before) * unit, whole.offset, whole.end());
  };
  const std::size_t begin = cut(index);
  return {begin, cut(index + 1) - begin};
}

std::size_t chunk_count(Extent whole, DType dtype, std::size_t chunk_bytes) {
  const std::size_t bytes = whole.count * size_of(dtype);
  const std::size_t limit = std::max(chunk_bytes, kWireAlignment);
  return std::max<std::size_t>(1, (bytes + limit - 1) / limit);
}

}  // namespace kolo
