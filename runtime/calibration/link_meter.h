#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "runtime/calibration/link_probe.h"
#include "topology/link_change.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Finds out what the links of a job cost. All ranks call it alike, and have the same answer.
///
/// Before:  nothing is in flight. Threads: as the transport. Its arguments outlive it.
/// Errors:  KoloError, those of rendezvous and transport.
class LinkMeter {
 public:
  /// `rank_cores` as in `LinkCosts`.
  LinkMeter(Rendezvous& rendezvous, Transport& transport, const ProcessGrid& grid,
            const ProbeLimits& limits, double rank_cores)
      : rendezvous_(rendezvous),
        transport_(transport),
        grid_(grid),
        limits_(limits),
        rank_cores_(rank_cores) {}

  /// Measures, for 140 ms. At most once: flags are used up.
  LinkCosts measure();

  /// Looks for 15 ms whether links between nodes are as they were `remembered`; if it seems that
  /// they are not, once more, and returns what has changed in both looks.
  std::optional<LinkChange> look(const LinkCosts& remembered);

 private:
  std::string memory_costs(TimePoint end);
  std::string network_costs(TimePoint end);
  LinkCosts combine(const std::string& mine);
  std::vector<LinkLook> look_once(const LinkCosts& remembered);

  Rendezvous& rendezvous_;
  Transport& transport_;
  const ProcessGrid& grid_;
  const ProbeLimits limits_;
  const double rank_cores_;
  const SteadyClock clock_;
};

}  // namespace kolo
