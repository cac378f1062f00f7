#pragma once

#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// One rank's position in the tree that is used for agreement. The ranks of a node form a tree of
/// the given arity under their leader. The leaders form another tree of this arity in node order,
/// with the leader of node 0 as the root. So a rank has at most twice the arity of children.
///
///   nodes {0 1} {2 3} {4 5}, arity 2:      0 - 1, 2, 4        2 - 3        4 - 5
///
/// Threads: pure value; any.
struct CombiningTree {
  int rank = 0;
  int root = 0;
  int parent = -1;  ///< -1 for the root.
  std::vector<int> children;
  std::vector<int> child_leaders;  ///< The children that are leaders of other nodes.

  static constexpr int kDefaultArity = 8;
  static CombiningTree build(int rank, const ProcessGrid& grid, int arity = kDefaultArity);
};

/// Returns the ranks to which rank `me` forwards the notice that the job has failed. `teller` is
/// the rank that notified `me`; -1: `me` detected the failure. The notice follows the edges of the
/// tree, at most once per direction. Rank `lost` (-1: none) forwards nothing. Therefore its first
/// neighbour that learns of the failure notifies all its neighbours, so that the notice reaches all
/// subtrees.
///
///   tree 0 - {1, 2}, 1 - {3, 4}; 1 is lost and 3 notices: 3 tells 1, 0 and 4; 0 tells 2
///
/// Cost: proportional to the degrees of `me` and `lost`. Pure.
std::vector<int> ranks_to_tell(const ProcessGrid& grid, const CombiningTree& me, int lost,
                               int teller);

}  // namespace kolo
