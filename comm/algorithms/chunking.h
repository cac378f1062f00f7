#pragma once

#include <cstddef>
#include <vector>

#include "comm/algorithms/compile_options.h"
#include "comm/schedule/bucket_layout.h"
#include "topology/process_grid.h"

namespace kolo {

/// Cuts `whole` into `parts` nearly equal parts and returns part `index`. Cuts are at multiples of
/// kWireAlignment bytes of the bucket. The parts cover `whole` exactly, in order. If `whole` is too
/// small for all parts, the last ones are empty.
///
///   elements  0        16       32       48  55     (16 elements per alignment unit)
///   parts     |   0    |   1    |   2    | 3 |
Extent part_of(Extent whole, std::size_t parts, std::size_t index, DType dtype);

/// Cuts `whole` as `part_of` does, but into unequal parts. `shares` holds the fraction of each
/// part; the fractions add up to 1.
Extent share_of(Extent whole, const std::vector<double>& shares, std::size_t index, DType dtype);

/// The number of chunks of at most `chunk_bytes` into which `whole` is cut, at least 1.
std::size_t chunk_count(Extent whole, DType dtype, std::size_t chunk_bytes);

/// Smallest chunk or bucket size that is considered, in bytes.
inline constexpr std::size_t kSmallestChunk = std::size_t{64} << 10;
/// Candidate sizes for cutting `bytes` bytes: powers of two from `smallest` on, largest first.
std::vector<std::size_t> sizes_for(std::size_t bytes, std::size_t smallest);

/// Alignment of the parts of a device bucket, in bytes.
inline constexpr std::size_t kDeviceAlignment = 128;

/// The count of every device bucket is a multiple of this number of elements. Therefore the ranks
/// of each node can own equal parts that are multiples of kDeviceAlignment bytes.
std::size_t device_padding(const ProcessGrid& grid, DType dtype);

/// Cuts a device bucket of `count` elements into nearly equal chunks of about `chunk_bytes`, each a
/// multiple of `padding` elements. Errors: UsageError unless `count` is a multiple of `padding`.
std::vector<Extent> device_chunks(std::size_t count, std::size_t padding, DType dtype,
                                  std::size_t chunk_bytes);

/// The chunk size of a bucket in bytes: `chunk_bytes` of the options, reduced for host buckets
/// between nodes so that at least two chunks fit in `network_window`.
std::size_t host_chunk_bytes(const ProcessGrid& grid, MemoryKind memory,
                             const CompileOptions& options);

/// Returns the number of chunks of a host bucket that may be in flight between nodes, or 0 for no
/// limit.
std::size_t window_width(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options);

/// Cuts the bucket into consecutive pieces of at most `piece_bytes`.
std::vector<Extent> host_pieces(const BucketLayout& layout, std::size_t piece_bytes);
/// Cuts the bucket into consecutive pieces of at most `host_chunk_bytes`.
std::vector<Extent> host_pieces(const BucketLayout& layout, const ProcessGrid& grid,
                                const CompileOptions& options);

/// Whether a rank may start the bucket as soon as it is ready on that rank, without agreement; see
/// Schedule::eager.
bool may_be_eager(const BucketLayout& layout, const ProcessGrid& grid,
                  const CompileOptions& options);

}  // namespace kolo
