#pragma once

#include "topology/link_costs.h"

namespace kolo {

/// Measures on this core, for some 40 ms, what the elements and the pairs of a top-k step take on
/// one rank, from selection to result. Threads: any.
SelectorCost probe_selector();

}  // namespace kolo
