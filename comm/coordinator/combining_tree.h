#pragma once

#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// One rank's place in the tree that agreement runs along: the ranks of a node form a tree of the
/// given arity under its leader, leaders form another in the order of nodes. The root is the leader
/// of node 0. So no rank has more than twice the arity of children, whatever the nodes are like.
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
