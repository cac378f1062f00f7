#pragma once

#include "topology/link_costs.h"

namespace kolo {

/// Measures on this core, for a few milliseconds, what selecting the largest elements of a tensor
/// and updating a result at random places take. Threads: any.
SelectorCost probe_selector();

}  // namespace kolo
