#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "comm/transport/transport.h"
#include "topology/link_fit.h"
#include "topology/process_grid.h"

namespace kolo {

/// Flags at the end of a rank's flags that measuring uses up; they are no bucket's.
inline constexpr std::uint32_t kProbeFlags = 2;

/// What measuring may use.
struct ProbeLimits {
  TransportLimits transport;
  int cores = 1;                                      ///< That the ranks of this node may run on.
  std::chrono::milliseconds node{40};                 ///< For what is measured inside a node,
  std::chrono::milliseconds network{80};              ///< and between nodes.
  std::chrono::milliseconds connect_timeout{60'000};  ///< A peer that is silent so long is lost.
};

/// Measures inside this rank's node: trips of flags, and passes over its arena by the kernels that
/// reduce buckets, in working sets from 1 to 64 MiB. All ranks of a node call it at once.
///
/// Before:  nothing is in flight. The arena's first bytes are free, and zero where committed.
/// After:   the same; up to 64 MiB for all ranks of the node together are committed.
/// Threads: as the transport.
/// Errors:  KoloError: that of the transport; kTimeout; kResources.
MemorySamples probe_node(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits);

/// Measures between the leaders of neighbouring nodes, in three rounds in which all pairs of nodes
/// 0 to 3, 4 to 7, ... meet: in the first, small messages one by one and in bursts; in each, a
/// stream in both directions. All ranks call it; only the lower one of each pair has samples.
/// Errors: as above.
NetworkSamples probe_network(Transport& transport, const ProcessGrid& grid,
                             const ProbeLimits& limits);

}  // namespace kolo
