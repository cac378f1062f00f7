#include "comm/algorithms/host_pieces.h"

#include <algorithm>

#include "comm/algorithms/chunking.h"

namespace kolo {
namespace {

/// The least number of chunks in a window: while one is in flight, another is packed or summed.
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
