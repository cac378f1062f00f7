#pragma once

#include <vector>

#include "comm/coordinator/combining_tree.h"
#include "topology/process_grid.h"

namespace kolo {

/// The ranks that `me` tells that the job has failed, when it finds that out or is told by `teller`
/// (-1: finds it out). The notice takes each edge of the tree, at most once in each direction. It
/// goes around the `lost` rank (-1: none): its neighbours stand in for it, and the first of them to
/// know tells the others, so no subtree is cut off.
///
///   tree 0 - {1, 2}, 1 - {3, 4}; 1 is lost and 3 notices: 3 tells 1, 0 and 4; 0 tells 2
///
/// Cost: what the degrees of `me` and of `lost` are. Pure.
std::vector<int> ranks_to_tell(const ProcessGrid& grid, const CombiningTree& me, int lost,
                               int teller);

}  // namespace kolo
