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

}  // namespace kolo
