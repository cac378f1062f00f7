#pragma once

#include <cstddef>

#include "comm/algorithms/algorithm_request.h"
#include "comm/algorithms/tuning.h"
#include "topology/link_costs.h"

namespace kolo {

/// Default of `CompileOptions::device_chunk_bytes`.
inline constexpr std::size_t kDeviceUnitBytes = std::size_t{32} << 20;

/// The options that decide which schedule a bucket gets; equal on all ranks.
struct CompileOptions {
  AlgorithmRequest algorithm = {};
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// Bytes of a staging slot on one node. A host bucket that is not in place passes through
  /// `window` slots, which should stay in the cache. A bucket of at most `cached_bytes` uses slots
  /// of `cached_slot_bytes`, which leave cache for its tensors.
  std::size_t slot_bytes = std::size_t{512} << 10;
  std::size_t cached_slot_bytes = std::size_t{256} << 10;
  std::size_t cached_bytes = std::size_t{8} << 20;
  std::size_t window = 2;
  /// Bytes of the largest host bucket that starts without agreement on several nodes.
  std::size_t eager_bytes = std::size_t{256} << 10;
  /// Bytes of a host bucket that may be in flight between nodes, in at least two chunks. 0 means no
  /// limit: the bucket is cut into chunks of `chunk_bytes`.
  std::size_t network_window = std::size_t{1} << 20;
  /// Bytes of the units into which a device bucket is cut. A unit passes through the collectives of
  /// its node and the exchange between nodes as a whole.
  std::size_t device_chunk_bytes = kDeviceUnitBytes;
  /// Bytes of pinned staging memory of a device bucket, per direction. Smaller buckets use less.
  std::size_t staging_bytes = std::size_t{16} << 20;
  bool network_takes_device_memory = false;
  /// Whether the device's native library has a communicator of all ranks.
  bool native_spans_nodes = true;
  /// Whether the device's native library has a communicator of each node's ranks.
  bool native_in_nodes = true;
  LinkCosts link_costs = {};
  /// Choices that replace those by price; may be null. Must outlive these options.
  const Tuning* tuning = nullptr;
};

}  // namespace kolo
