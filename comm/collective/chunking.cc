#include "comm/collective/chunking.h"

#include <algorithm>
#include <numeric>

#include "comm/base/check.h"

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

std::size_t device_padding(const ProcessGrid& grid, DType dtype) {
  std::size_t parts = 1;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    parts = std::lcm(parts, grid.ranks_of_node(node).size());
  }
  return parts * (kDeviceAlignment / size_of(dtype));
}

std::vector<Extent> device_chunks(std::size_t count, std::size_t padding, DType dtype,
                                  std::size_t chunk_bytes) {
  check(count % padding == 0, "the count of a device bucket is no multiple of device_padding");
  const std::size_t units = count / padding;
  const std::size_t most = std::max<std::size_t>(1, units);
  const std::size_t chunks = std::min(chunk_count({0, count}, dtype, chunk_bytes), most);
  std::vector<Extent> result(chunks);
  for (std::size_t i = 0; i < chunks; ++i) {
    const std::size_t begin = units * i / chunks * padding;
    result[i] = {begin, units * (i + 1) / chunks * padding - begin};
  }
  return result;
}

}  // namespace kolo
