#pragma once

#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// One rank's place in the tree used for agreement: the ranks of a node form a tree of the given
/// arity under their leader, and the leaders form another one, in node order. The root is the
/// leader of node 0. So no rank has more than twice the arity of children, whatever the node sizes.
///
///   nodes {0 1} {2 3} {4 5}, arity 2:      0 - 1, 2, 4        2 - 3        4 - 5
///
/// Threads: pure value; any.
struct CombiningTree {
  int rank = 0;
  int root = 0;
  int parent = -1;  ///< -1 for the root.
  std::vector<int> children;
  std::vector<int> child_leaders;  ///< The children that lead other nodes.

  static constexpr int kDefaultArity = 8;
  static CombiningTree build(int rank, const ProcessGrid& grid, int arity = kDefaultArity);
};

/// The ranks that `me` notifies that the job has failed, when it detects the failure or is told by
/// `teller` (-1: it detected it). The notice takes each edge of the tree at most once per
/// direction. It bypasses the `lost` rank (-1: none): that rank's neighbours stand in for it, and
/// the first of them to know tells the others, so no subtree is cut off.
///
///   tree 0 - {1, 2}, 1 - {3, 4}; 1 is lost and 3 notices: 3 tells 1, 0 and 4; 0 tells 2
///
/// Cost: proportional to the degrees of `me` and `lost`. Pure.
std::vector<int> ranks_to_tell(const ProcessGrid& grid, const CombiningTree& me, int lost,
                               int teller);

}  // namespace kolo
