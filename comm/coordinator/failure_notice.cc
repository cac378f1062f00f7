#include "comm/coordinator/failure_notice.h"

#include "comm/base/contains.h"

namespace kolo {
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
    // Another neighbour of the lost rank has told all of them.
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
