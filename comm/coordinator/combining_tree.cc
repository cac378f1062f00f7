#include "comm/coordinator/combining_tree.h"

#include <algorithm>

#include "comm/base/contains.h"

namespace kolo {

CombiningTree CombiningTree::build(int rank, const ProcessGrid& grid, int arity) {
  const int node = grid.node(rank);
  const int local = grid.local_rank(rank);
  const auto& ranks = grid.ranks_of_node(node);
  const auto in_node = [&](int index) { return ranks[static_cast<std::size_t>(index)]; };
  CombiningTree tree{.rank = rank, .root = grid.leader(0), .children = {}, .child_leaders = {}};
  const int last_local = std::min(arity * local + arity, static_cast<int>(ranks.size()) - 1);
  for (int child = arity * local + 1; child <= last_local; ++child) {
    tree.children.push_back(in_node(child));
  }
  if (local > 0) {
    tree.parent = in_node((local - 1) / arity);
    return tree;
  }
  if (node > 0) tree.parent = grid.leader((node - 1) / arity);
  const int last = std::min(arity * node + arity, grid.num_nodes() - 1);
  for (int child = arity * node + 1; child <= last; ++child) {
    tree.child_leaders.push_back(grid.leader(child));
  }
  tree.children.insert(tree.children.end(), tree.child_leaders.begin(), tree.child_leaders.end());
  return tree;
}

namespace {

std::vector<int> neighbours_of(const CombiningTree& tree) {
  std::vector<int> ranks = tree.children;
  if (tree.parent >= 0) ranks.push_back(tree.parent);
  return ranks;
}

}  // namespace

std::vector<int> ranks_to_tell(const ProcessGrid& grid, const CombiningTree& me, int lost,
                               int teller) {
  std::vector<int> ranks = neighbours_of(me);
  if (contains(ranks, lost)) {
    const std::vector<int> others = neighbours_of(CombiningTree::build(lost, grid));
    // If the teller is a neighbour of the lost rank, it has notified that rank's neighbours.
    if (!contains(others, teller)) {
      for (const int other : others) {
        if (other != me.rank) ranks.push_back(other);
      }
    }
  }
  std::erase(ranks, teller);
  return ranks;
}

}  // namespace kolo
