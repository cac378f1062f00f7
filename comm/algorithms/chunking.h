#pragma once

#include <cstddef>
#include <vector>

#include "comm/algorithms/compile_options.h"
#include "comm/schedule/bucket_layout.h"
#include "topology/process_grid.h"

namespace kolo {

/// Part `index` of `parts` nearly equal parts of `whole`, cut at multiples of kWireAlignment bytes
/// of the bucket. Parts cover `whole` exactly, in order. The last ones may be empty; if `whole` is
/// tiny, all but the first are empty.
///
///   elements  0        16       32       48  55     (16 elements per alignment unit)
///   parts     |   0    |   1    |   2    | 3 |
Extent part_of(Extent whole, std::size_t parts, std::size_t index, DType dtype);

/// As `part_of`, with unequal parts: `shares` holds each part's fraction. Fractions add up to 1.
Extent share_of(Extent whole, const std::vector<double>& shares, std::size_t index, DType dtype);

/// How many chunks of at most `chunk_bytes` an extent is cut into for pipelining; at least 1.
std::size_t chunk_count(Extent whole, DType dtype, std::size_t chunk_bytes);

/// Smallest chunk or bucket size that is considered.
inline constexpr std::size_t kSmallestChunk = std::size_t{64} << 10;
/// Sizes worth trying for `bytes` bytes, largest first: powers of two no smaller than `smallest`.
std::vector<std::size_t> sizes_for(std::size_t bytes, std::size_t smallest);

/// Parts of a device bucket start at multiples of this many bytes.
inline constexpr std::size_t kDeviceAlignment = 128;

/// The number of elements of which the count of every device bucket is a multiple. It is divisible
/// by every local size, and each part has a multiple of kDeviceAlignment bytes: so the ranks of
/// each node can own equal, aligned parts.
std::size_t device_padding(const ProcessGrid& grid, DType dtype);

/// Cuts a device bucket of `count` elements into nearly equal chunks of about `chunk_bytes`, each a
/// multiple of `padding` elements. Errors: UsageError unless `count` is a multiple of `padding`.
std::vector<Extent> device_chunks(std::size_t count, std::size_t padding, DType dtype,
                                  std::size_t chunk_bytes);

/// The size of the pieces in which a bucket moves. Between nodes, the window of a host bucket holds
/// at least two of them.
std::size_t host_chunk_bytes(const ProcessGrid& grid, MemoryKind memory,
                             const CompileOptions& options);

/// The number of chunks of a host bucket that may be in flight between nodes; 0: no limit. See
/// ChunkWindow.
std::size_t window_width(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options);

/// Cuts the bucket into consecutive pieces of at most `piece_bytes`.
std::vector<Extent> host_pieces(const BucketLayout& layout, std::size_t piece_bytes);
/// As above, with pieces of `host_chunk_bytes`.
std::vector<Extent> host_pieces(const BucketLayout& layout, const ProcessGrid& grid,
                                const CompileOptions& options);

/// Whether a rank may start the bucket as soon as it is ready there; see Schedule::eager.
bool may_be_eager(const BucketLayout& layout, const ProcessGrid& grid,
                  const CompileOptions& options);

}  // namespace kolo
