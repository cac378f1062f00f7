#pragma once

#include <chrono>
#include <optional>

#include "comm/base/clock.h"
#include "comm/transport/transport.h"
#include "runtime/calibration/link_probe.h"
#include "topology/link_change.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// What a look takes, beside what is under way at its end: 10 ms more where links have become 10
/// times slower.
inline constexpr std::chrono::milliseconds kLookWithin{15};

/// Looks at the link between this rank's node and its neighbour, to find out whether it costs what
/// is remembered. All ranks call it; the leaders of nodes 0, 2, ... have an answer if there is a
/// neighbour. Before, errors: as `probe_network`; `remembered` is alike on all ranks.
std::optional<LinkLook> look_at_link(MessageTransport& transport, const ProcessGrid& grid,
                                     const ProbeLimits& limits, const Clock& clock,
                                     const LinkCosts& remembered);

}  // namespace kolo
