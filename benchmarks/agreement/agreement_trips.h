#pragma once

#include <cstddef>
#include <optional>

#include "benchmarks/common/samples.h"
#include "comm/rendezvous/rendezvous.h"
#include "runtime/api/options.h"

namespace kolo::bench {

struct AgreementTrips {
  /// From the last rank being ready for a bucket until it starts on that rank and on all ranks of
  /// its node; microseconds. The last rank is the job's last, so between nodes the news goes up the
  /// tree and comes down again.
  Summary agree_us;
  /// A message of eight bytes over UCX from that rank to the first one and back, in turn with the
  /// agreements; none on one node.
  std::optional<Summary> network_us;
};

/// Measures agreement alone: coordinators on the connections that a job makes, without an engine.
/// Collective. The result counts on rank 0 and on the last.
/// Errors: those of `connect`; KoloError if a rank is lost.
AgreementTrips measure_trips(Rendezvous& rendezvous, const Options& options,
                             std::size_t agreements);

}  // namespace kolo::bench
