#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/cost_model.h"
#include "topology/process_grid.h"

namespace kolo {

/// What decides which schedule a bucket gets; equal on all ranks.
struct CompileOptions {
  /// "auto", a name of `algorithm_names()`, or "hierarchical:LOCAL,CROSS" with LOCAL direct
  /// (host buckets), native (device buckets) or ring.
  std::string algorithm = "auto";
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// A bucket of the host that is not in place, on one node, moves through `window` slots of at
  /// most this many bytes, which are to stay in the cache; a bucket of at most `cached_bytes`
  /// through smaller ones, which leave room for its tensors next to the core.
  std::size_t slot_bytes = std::size_t{512} << 10;
  std::size_t cached_slot_bytes = std::size_t{256} << 10;
  std::size_t cached_bytes = std::size_t{8} << 20;
  std::size_t window = 2;
  /// Between nodes, a host bucket of at most this size starts without agreement.
  std::size_t eager_bytes = std::size_t{64} << 10;
  /// Bytes of a host bucket that are under way between nodes, in at least two chunks; 0: all of
  /// them, in chunks of `chunk_bytes`.
  std::size_t network_window = std::size_t{1} << 20;
  /// Of device buckets: what goes through the node's collectives and the network as one unit.
  std::size_t device_chunk_bytes = kDeviceUnitBytes;
  /// Pinned memory of a device bucket for each direction; less for smaller buckets.
  std::size_t staging_bytes = std::size_t{16} << 20;
  bool network_takes_device_memory = false;
  /// The device's own library has a group of all ranks.
  bool native_spans_nodes = true;
  LinkCosts link_costs = {};
};

/// Names that `CompileOptions::algorithm` takes beside "auto" and "hierarchical:LOCAL,CROSS".
const std::vector<std::string>& algorithm_names();

/// A bucket in host memory as the cost model sees it.
HostBucket host_bucket(const BucketLayout& layout);

/// The algorithm that "auto" stands for, or the given one in full ("hierarchical" names its parts).
/// Errors: KoloError(kConfig) if there is no such algorithm, if it is not one for this kind of
/// memory, or if it would round a 16-bit bucket more than once per level (ring, halving_doubling,
/// tree), naming those that do not. Inside the library of a device roundings are not ours to count.
std::string resolve_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                              const CompileOptions& options);

/// Why `resolve_algorithm` says what it says for a device bucket, as a person reads it:
/// "native: 5.2 ms predicted; hierarchical:native,ring 8.1 ms".
std::string explain_device_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                                     const CompileOptions& options);

/// The schedule of `rank` that combines a bucket of `layout` over all ranks.
///
/// Before: layout, grid and options are equal on all ranks. After running it on all ranks, all hold
///         identical bytes. Threads: pure; any.
/// Errors: as `resolve_algorithm`; UsageError if the count of a device bucket is no multiple of
///         `device_padding`.
Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options);

/// The schedule of `rank` that copies the bucket of `root` to all ranks. Errors: as above.
Schedule compile_broadcast(int rank, int root, const BucketLayout& layout, const ProcessGrid& grid,
                           const CompileOptions& options);

}  // namespace kolo
