#include "comm/coordinator/failure_notice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

struct Notice {
  int teller;
  int rank;
};

/// How many notices each edge carries when these ranks notice by themselves that one is lost.
/// Notices are delivered in an order of the seed. Survivors must all be told.
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

// All notice at once: each edge carries one notice in each direction, and the neighbours of the
// lost rank, who do not know of each other, tell each other.
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
