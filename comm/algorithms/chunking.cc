#include "comm/algorithms/chunking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr std::size_t kLargestChunk = std::size_t{64} << 20;

/// Returns part `index` of `parts`. `units_before(units, i)` returns the number of units before
/// part i, out of `units`. Parts are cut at multiples of a unit, counted from the start of the
/// bucket.
template <typename UnitsBefore>
Extent cut(Extent whole, std::size_t parts, std::size_t index, DType dtype,
           UnitsBefore units_before) {
  const std::size_t unit = kWireAlignment / size_of(dtype);
  const auto rounded_up = [unit](std::size_t element) { return (element + unit - 1) / unit; };
  const std::size_t first = rounded_up(whole.offset);
  const std::size_t last = std::max(first, rounded_up(whole.end()));
  const auto begin_of = [&](std::size_t i) -> std::size_t {
    if (i == 0) return whole.offset;
    if (i == parts) return whole.end();
    return std::clamp((first + units_before(last - first, i)) * unit, whole.offset, whole.end());
  };
  const std::size_t begin = begin_of(index);
  return {begin, begin_of(index + 1) - begin};
}

}  // namespace

Extent part_of(Extent whole, std::size_t parts, std::size_t index, DType dtype) {
  return cut(whole, parts, index, dtype, [parts](std::size_t units, std::size_t i) {
    return units / parts * i + std::min(units % parts, i);
  });
}

Extent share_of(Extent whole, const std::vector<double>& shares, std::size_t index, DType dtype) {
  return cut(whole, shares.size(), index, dtype, [&](std::size_t units, std::size_t i) {
    const double before =
        std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(i), 0.0);
    return static_cast<std::size_t>(std::lround(before * static_cast<double>(units)));
  });
}

std::size_t chunk_count(Extent whole, DType dtype, std::size_t chunk_bytes) {
  const std::size_t bytes = whole.count * size_of(dtype);
  const std::size_t limit = std::max(chunk_bytes, kWireAlignment);
  return std::max<std::size_t>(1, (bytes + limit - 1) / limit);
}

std::vector<std::size_t> sizes_for(std::size_t bytes, std::size_t smallest) {
  std::size_t size = kSmallestChunk;
  while (size < bytes && size < kLargestChunk) size *= 2;
  std::vector<std::size_t> sizes{size};
  while ((size /= 2) >= smallest) sizes.push_back(size);
  return sizes;
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

namespace {

/// Smallest number of chunks in a window: while one is in flight, another is packed or summed.
constexpr std::size_t kChunksInWindow = 2;

bool has_window(const ProcessGrid& grid, MemoryKind memory, const CompileOptions& options) {
  return options.network_window > 0 && grid.num_nodes() > 1 && memory == MemoryKind::kHost;
}

}  // namespace

std::size_t host_chunk_bytes(const ProcessGrid& grid, MemoryKind memory,
                             const CompileOptions& options) {
  if (!has_window(grid, memory, options)) return options.chunk_bytes;
  return std::min(options.chunk_bytes, options.network_window / kChunksInWindow);
}

std::size_t window_width(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options) {
  if (!has_window(grid, layout.memory, options)) return 0;
  const std::size_t chunk_bytes =
      std::max(kWireAlignment, host_chunk_bytes(grid, layout.memory, options));
  return std::max(kChunksInWindow, options.network_window / chunk_bytes);
}

std::vector<Extent> host_pieces(const BucketLayout& layout, std::size_t piece_bytes) {
  const Extent whole{0, layout.count};
  std::vector<Extent> pieces(chunk_count(whole, layout.dtype, piece_bytes));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i] = part_of(whole, pieces.size(), i, layout.dtype);
  }
  return pieces;
}

std::vector<Extent> host_pieces(const BucketLayout& layout, const ProcessGrid& grid,
                                const CompileOptions& options) {
  return host_pieces(layout, host_chunk_bytes(grid, layout.memory, options));
}

bool may_be_eager(const BucketLayout& layout, const ProcessGrid& grid,
                  const CompileOptions& options) {
  return !layout.is_on_device() && (grid.num_nodes() == 1 || layout.bytes() <= options.eager_bytes);
}

}  // namespace kolo
