#pragma once

#include <cstddef>

#include "comm/algorithms/algorithm_request.h"
#include "topology/link_costs.h"

namespace kolo {

/// Default size of the units in which a device bucket passes through node and network.
inline constexpr std::size_t kDeviceUnitBytes = std::size_t{32} << 20;

/// The options that decide which schedule a bucket gets; equal on all ranks.
struct CompileOptions {
  AlgorithmRequest algorithm = {};
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// A host bucket on one node that is not in place moves through `window` slots of at most this
  /// many bytes, sized to stay in the cache. A bucket of at most `cached_bytes` uses smaller slots,
  /// which leave room in the core's cache for its tensors.
  std::size_t slot_bytes = std::size_t{512} << 10;
  std::size_t cached_slot_bytes = std::size_t{256} << 10;
  std::size_t cached_bytes = std::size_t{8} << 20;
  std::size_t window = 2;
  /// Between nodes, a host bucket of at most this size starts without agreement.
  std::size_t eager_bytes = std::size_t{256} << 10;
  /// Bytes of a host bucket in flight between nodes, in at least two chunks; 0: the whole bucket,
  /// in chunks of `chunk_bytes`.
  std::size_t network_window = std::size_t{1} << 20;
  /// Device buckets: size of the units that pass through the node's collectives and the network.
  std::size_t device_chunk_bytes = kDeviceUnitBytes;
  /// Pinned staging memory of a device bucket per direction; smaller buckets use less.
  std::size_t staging_bytes = std::size_t{16} << 20;
  bool network_takes_device_memory = false;
  /// The device's native library has a communicator of all ranks.
  bool native_spans_nodes = true;
  /// The native library has a communicator of the ranks of each node.
  bool native_in_nodes = true;
  LinkCosts link_costs = {};
};

}  // namespace kolo
