#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "comm/base/clock.h"
#include "comm/transport/transport.h"
#include "topology/link_fit.h"
#include "topology/process_grid.h"

namespace kolo {

/// Flags at the end of a rank's flags that measuring uses up; they are no bucket's.
inline constexpr std::uint32_t kProbeFlags = 2;

/// What measuring may use.
struct ProbeLimits {
  TransportLimits transport;
  bool shares_cores = false;  ///< With other ranks of this machine, whatever nodes it plays.
  std::chrono::milliseconds connect_timeout{60'000};  ///< A peer that is silent so long is lost.
};

/// When measuring is over, on a clock that may be a test's.
struct ProbeTime {
  const Clock& clock;
  TimePoint end;
};

/// Measures inside this rank's node: trips of flags, and passes over its arena by the kernels that
/// reduce buckets, in working sets from 1 to 64 MiB. All ranks of a node call it at once; the time
/// is that of the first one. There is one sample of each kind in any case, but for working sets
/// beyond 1 MiB that would take longer than there is time.
///
/// Before:  nothing is in flight. The arena's first bytes are free, and zero where committed.
/// After:   the same; up to 64 MiB for all ranks of the node together are committed.
/// Threads: as the transport.
/// Errors:  KoloError: that of the transport; kTimeout; kResources.
MemorySamples probe_node(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits,
                         const ProbeTime& time);

/// Messages of a stream that are under way each way: enough to keep any link busy.
inline constexpr std::size_t kStreamWindow = 4;

/// How closely the links between nodes are measured.
struct NetworkEffort {
  /// Node k meets node k ^ round: in one round its neighbour, in three all pairs of nodes 0 to 3,
  /// 4 to 7, ... meet, so that a node's rate is known unless all three others are slower.
  int rounds = 3;
  std::size_t message_bytes = std::size_t{32} << 10;  ///< Of a stream.

  /// Bytes of a stream that are still to come, each way, when it is decided that it ends: what was
  /// under way then, and what it had the peer send by then.
  std::size_t tail_bytes() const { return 2 * kStreamWindow * message_bytes; }
};

/// Measures between the leaders of neighbouring nodes, in rounds: in the first, small messages one
/// by one and in bursts; in each, a stream in both directions. All ranks call it; only the lower
/// one of each pair has samples.
///
/// A stream ends when its tail, at the rate of what came last, would take the rest of the time. Of
/// links that need longer for `effort.tail_bytes()` than a round has, each round takes that long.
/// Before: `effort` is alike on all ranks. Errors: as above.
NetworkSamples probe_network(MessageTransport& transport, const ProcessGrid& grid,
                             const ProbeLimits& limits, const ProbeTime& time,
                             const NetworkEffort& effort = {});

}  // namespace kolo
