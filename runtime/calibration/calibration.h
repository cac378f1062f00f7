#pragma once

#include <string>

#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "runtime/api/options.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// What links cost, and how that is known.
struct Calibration {
  LinkCosts costs;
  /// For people: "measured in 143 ms", "read from PATH, looked over in 15 ms", "defaults"; with
  /// the reason if costs were measured again.
  std::string source;
  std::string shape;  ///< Names the job in a `CalibrationFile`.
};

/// Finds out what the links of a job cost: from the option `calibration_file` if it knows a job of
/// this shape and a short look at the links between nodes agrees, else by measuring, for up to 200
/// ms in all, unless the option `calibrate` is off. Rank 0 decides, so all ranks get the same. What
/// the option `link_costs` names counts more than either.
///
/// Collective. Before: nothing is in flight. Flags `limits.flags_per_peer` - 2 and up of all pairs
/// are used up. Threads: as the transport. Errors: KoloError, those of rendezvous and transport.
Calibration calibrate(Rendezvous& rendezvous, Transport& transport, const ProcessGrid& grid,
                      const TransportLimits& limits, const Options& options);

}  // namespace kolo
