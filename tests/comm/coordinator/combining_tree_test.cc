#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "comm/coordinator/combining_tree.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<CombiningTree> build_all(const ProcessGrid& grid, int arity) {
  std::vector<CombiningTree> trees;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    trees.push_back(CombiningTree::build(rank, grid, arity));
  }
  return trees;
}

/// Expects that the trees of all ranks are consistent and form one tree.
void expect_consistent(const ProcessGrid& grid, int arity) {
  const std::vector<CombiningTree> trees = build_all(grid, arity);
  const auto of = [&](int rank) -> const CombiningTree& {
    return trees[static_cast<std::size_t>(rank)];
  };
  std::size_t edges = 0;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    const CombiningTree& tree = of(rank);
    const bool leads = grid.leader(grid.node(rank)) == rank;
    EXPECT_EQ(tree.rank, rank);
    EXPECT_EQ(tree.root, grid.leader(0));
    EXPECT_EQ(tree.parent < 0, rank == tree.root) << "rank " << rank;
    edges += tree.children.size();
    for (int child : tree.children) EXPECT_EQ(of(child).parent, rank) << "child " << child;
    if (tree.parent >= 0) {
      EXPECT_THAT(of(tree.parent).children, Contains(rank).Times(1));
    }

    std::vector<int> elsewhere;
    std::copy_if(tree.children.begin(), tree.children.end(), std::back_inserter(elsewhere),
                 [&](int child) { return !grid.same_node(rank, child); });
    EXPECT_EQ(tree.child_leaders, elsewhere);
    EXPECT_LE(elsewhere.size(), static_cast<std::size_t>(arity));
    for (int child : elsewhere) EXPECT_EQ(grid.leader(grid.node(child)), child);
    EXPECT_LE(tree.children.size() - elsewhere.size(), static_cast<std::size_t>(arity));
    if (!leads) {
      EXPECT_THAT(elsewhere, IsEmpty());
      EXPECT_TRUE(grid.same_node(rank, tree.parent));
    }

    int at = rank;
    for (int hops = 0; at != tree.root; ++hops) {
      ASSERT_LT(hops, grid.world_size()) << "rank " << rank << " does not reach the root";
      at = of(at).parent;
    }
  }
  EXPECT_EQ(edges, static_cast<std::size_t>(grid.world_size() - 1));
}

class CombiningTrees : public testing::TestWithParam<int> {};

TEST_P(CombiningTrees, AreOneTreeForAllShapesOfUpToSixteenRanks) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    test::for_each_node_shape(ranks, [&](std::vector<int> sizes) {
      SCOPED_TRACE(test::shape_text(sizes));
      expect_consistent(ProcessGrid::with_node_sizes(sizes), GetParam());
      std::reverse(sizes.begin(), sizes.end());
      expect_consistent(ProcessGrid::with_node_sizes(sizes), GetParam());
    });
  }
}

TEST_P(CombiningTrees, AreOneTreeWhenRanksGoRoundTheNodes) {
  for (int nodes : {1, 2, 3, 5, 9}) {
    std::vector<std::string> node_of_rank;
    for (int rank = 0; rank < 16; ++rank) node_of_rank.push_back(std::to_string(rank % nodes));
    SCOPED_TRACE(nodes);
    expect_consistent(ProcessGrid(node_of_rank), GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Arities, CombiningTrees, testing::Values(2, CombiningTree::kDefaultArity));

TEST(CombiningTree, IsTheOneDrawnInItsHeader) {
  const auto trees = build_all(ProcessGrid::with_node_sizes({2, 2, 2}), 2);
  EXPECT_THAT(trees[0].children, ElementsAre(1, 2, 4));
  EXPECT_THAT(trees[0].child_leaders, ElementsAre(2, 4));
  EXPECT_THAT(trees[2].children, ElementsAre(3));
  EXPECT_THAT(trees[4].children, ElementsAre(5));
}

// At arity 8, 512 nodes form levels of 1, 8, 64 and the rest.
TEST(CombiningTree, IsAsDeepAsTheLogarithmOfTheNodes) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(std::vector<int>(512, 1));
  const auto trees = build_all(grid, CombiningTree::kDefaultArity);
  int deepest = 0;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    int depth = 0;
    for (int at = rank; at != 0; at = trees[static_cast<std::size_t>(at)].parent) ++depth;
    deepest = std::max(deepest, depth);
  }
  EXPECT_EQ(deepest, 3);
}

struct Notice {
  int teller;
  int rank;
};

/// Returns the number of notices on each edge if the ranks `noticing` detect by themselves that
/// `lost` is lost. Notices are delivered in a seeded order. Expects that all survivors are
/// notified.
std::map<std::pair<int, int>, int> spread(const ProcessGrid& grid, int lost,
                                          const std::vector<int>& noticing, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<bool> knows(static_cast<std::size_t>(grid.world_size()));
  std::map<std::pair<int, int>, int> notices;
  std::vector<Notice> in_flight;
  const auto learn = [&](int rank, int teller) {
    if (knows[static_cast<std::size_t>(rank)]) return;
    knows[static_cast<std::size_t>(rank)] = true;
    for (const int told : ranks_to_tell(grid, CombiningTree::build(rank, grid), lost, teller)) {
      EXPECT_NE(told, rank);
      ++notices[{rank, told}];
      in_flight.push_back({rank, told});
    }
  };
  for (const int rank : noticing) learn(rank, -1);
  while (!in_flight.empty()) {
    std::swap(in_flight[random() % in_flight.size()], in_flight.back());
    const Notice notice = in_flight.back();
    in_flight.pop_back();
    if (notice.rank != lost) learn(notice.rank, notice.teller);
  }
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    EXPECT_EQ(knows[static_cast<std::size_t>(rank)], rank != lost) << "rank " << rank;
  }
  return notices;
}

TEST(FailureNotice, ReachesAllAroundAnyLostRankWhoeverNotices) {
  for (int ranks = 2; ranks <= 12; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      for (int lost = -1; lost < ranks; ++lost) {
        for (int first = 0; first < ranks; ++first) {
          if (first == lost) continue;
          SCOPED_TRACE(test::shape_text(sizes) + ", lost " + std::to_string(lost) +
                       ", noticed by " + std::to_string(first));
          const auto notices = spread(grid, lost, {first}, static_cast<unsigned>(first));
          for (const auto& [edge, count] : notices) ASSERT_EQ(count, 1);
        }
      }
    });
  }
}

// All ranks detect the loss at the same time. Each edge carries one notice in each direction. The
// neighbours of the lost rank do not know who else has detected it, so they notify each other.
TEST(FailureNotice, IsNoFloodWhenAllNotice) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(std::vector<int>(200, 4));
  constexpr int kLost = 4;  // leads node 1, with 3 ranks and 8 leaders below
  std::vector<int> all;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    if (rank != kLost) all.push_back(rank);
  }
  const auto notices = spread(grid, kLost, all, 1);
  const std::size_t tree_notices = 2 * static_cast<std::size_t>(grid.world_size() - 1);
  constexpr std::size_t kNeighbours = 12;
  EXPECT_LE(notices.size(), tree_notices + kNeighbours * (kNeighbours - 1));
  for (const auto& [edge, count] : notices) EXPECT_EQ(count, 1);
}

}  // namespace

}  // namespace kolo
