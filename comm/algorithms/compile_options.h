#pragma once

#include <cstddef>

#include "comm/algorithms/algorithm_request.h"
#include "topology/link_costs.h"

namespace kolo {

/// The bytes of a device bucket that go through node and network as one unit, unless told
/// otherwise.
inline constexpr std::size_t kDeviceUnitBytes = std::size_t{32} << 20;

/// The options that decide which schedule a bucket gets; equal on all ranks.
struct CompileOptions {
  AlgorithmRequest algorithm = {};
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// A bucket of the host that is not in place, on one node, moves through `window` slots of at
  /// most this many bytes, which are to stay in the cache; a bucket of at most `cached_bytes`
  /// through smaller ones, which leave room for its tensors next to the core.
  std::size_t slot_bytes = std::size_t{512} << 10;
  std::size_t cached_slot_bytes = std::size_t{256} << 10;
  std::size_t cached_bytes = std::size_t{8} << 20;
  std::size_t window = 2;
  /// Between nodes, a host bucket of at most this size starts without agreement.
  std::size_t eager_bytes = std::size_t{256} << 10;
  /// The bytes of a host bucket that are in flight between nodes, in at least two chunks; 0: all of
  /// them, in chunks of `chunk_bytes`.
  std::size_t network_window = std::size_t{1} << 20;
  /// Device buckets: size of the units that pass through the node's collectives and the network.
  std::size_t device_chunk_bytes = kDeviceUnitBytes;
  /// Pinned memory of a device bucket for each direction; less for smaller buckets.
  std::size_t staging_bytes = std::size_t{16} << 20;
  bool network_takes_device_memory = false;
  /// The device's own library has a group of all ranks.
  bool native_spans_nodes = true;
  /// It has one of the ranks of each node.
  bool native_in_nodes = true;
  LinkCosts link_costs = {};
};

}  // namespace kolo
