#pragma once

#include <string>
#include <vector>

#include "fusion/gradient.h"
#include "runtime/compression_plan.h"
#include "runtime/compression_stats.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Decides what specs leave open, `auto` and the route of top-k, by what links cost, and writes it
/// to the gradients: dense, a 16-bit wire, or top-k by a named route. Each compression group is
/// decided by itself. Returns an entry for each with what was chosen and why.
///
/// On one node `auto` is dense whatever was measured: owners sum in mapped memory, and no selection
/// is faster than what it reads. A route of top-k goes by that memory there. Between nodes each
/// rank is taken to exchange its part of the tensors over its share of the node's link.
///
/// Threads: pure; any. Equal arguments give equal choices: costs are rank 0's.
std::vector<CompressionDecision> choose_compression(std::vector<GradientSpec>& gradients,
                                                    const ProcessGrid& grid,
                                                    const LinkCosts& costs);

/// Predicted time of a sparse step of a group whose spec names its route. Pure.
double predict_sparse_us(const PlannedGroup& group, const ProcessGrid& grid,
                         const LinkCosts& costs);

}  // namespace kolo
