#include "comm/coordinator/combining_tree.h"

#include <algorithm>

namespace kolo {

CombiningTree CombiningTree::build(int rank, const ProcessGrid& grid, int arity) {
  const int node = grid.node(rank);
  CombiningTree tree{.rank = rank, .root = grid.leader(0), .children = {}, .child_leaders = {}};
  if (rank != grid.leader(node)) {
    tree.parent = grid.leader(node);
    return tree;
  }
  if (node > 0) tree.parent = grid.leader((node - 1) / arity);
  for (int peer : grid.ranks_of_node(node)) {
    if (peer != rank) tree.children.push_back(peer);
  }
  const int last = std::min(arity * node + arity, grid.num_nodes() - 1);
  for (int child = arity * node + 1; child <= last; ++child) {
    tree.child_leaders.push_back(grid.leader(child));
  }
  tree.children.insert(tree.children.end(), tree.child_leaders.begin(), tree.child_leaders.end());
  return tree;
}

}  // namespace kolo
