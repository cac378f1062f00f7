#pragma once

#include <span>
#include <string>

#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "runtime/api/options.h"
#include "runtime/calibration/rank_place.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Link costs, and where they come from.
struct Calibration {
  LinkCosts costs;
  /// For people: "measured in 143 ms", "read from PATH" or "defaults".
  std::string source;
};

/// Finds out what the links of a job cost: from the option `calibration_file` if it knows a job of
/// this shape whose costs are not older than `kCostsExpire`, else by measuring, for up to 200 ms in
/// all, unless the option `calibrate` is off. Defaults stand in for what ranks measured whose
/// samples disagree, as those of a busy machine do: one warning says so, and no file remembers
/// them. Rank 0 decides, so that all ranks hold the same costs. The option `link_costs` overrides
/// single ones.
///
/// Collective. Before: nothing is in flight. Flags `limits.flags_per_peer` - 2 and up of all pairs
/// are used up. Threads: as the transport. Errors: KoloError, those of rendezvous and transport.
Calibration calibrate(Rendezvous& rendezvous, Transport& transport, const ProcessGrid& grid,
                      std::span<const RankPlace> places, const TransportLimits& limits,
                      const Options& options);

}  // namespace kolo
