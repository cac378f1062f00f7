#pragma once

#include <cstddef>
#include <vector>

#include "comm/algorithms/compile_options.h"
#include "comm/schedule/bucket_layout.h"
#include "topology/process_grid.h"

namespace kolo {

/// The size of the pieces in which a bucket moves; between nodes the window of a host bucket holds
/// at least two of them.
std::size_t host_chunk_bytes(const ProcessGrid& grid, MemoryKind memory,
                             const CompileOptions& options);

/// The number of chunks of a host bucket that may be in flight between nodes; 0: all. See
/// ChunkWindow.
std::size_t window_width(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options);

/// The bucket in pieces of at most `piece_bytes` that follow each other.
std::vector<Extent> host_pieces(const BucketLayout& layout, std::size_t piece_bytes);
/// The same of `host_chunk_bytes`.
std::vector<Extent> host_pieces(const BucketLayout& layout, const ProcessGrid& grid,
                                const CompileOptions& options);

/// Whether a rank may start the bucket as soon as it is ready there; see Schedule::eager.
bool may_be_eager(const BucketLayout& layout, const ProcessGrid& grid,
                  const CompileOptions& options);

}  // namespace kolo
