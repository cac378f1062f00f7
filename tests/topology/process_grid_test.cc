#include "topology/process_grid.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>
#include <stdexcept>

namespace kolo {
namespace {

using testing::ElementsAre;

/// Checks properties of a grid made from any ids.
void expect_consistent(const std::vector<std::string>& ids) {
  const ProcessGrid grid(ids);
  const int world_size = static_cast<int>(ids.size());
  ASSERT_EQ(grid.world_size(), world_size);
  EXPECT_EQ(grid.num_nodes(), static_cast<int>(std::set(ids.begin(), ids.end()).size()));

  int ranks_seen = 0;
  bool even = true;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::vector<int>& ranks = grid.ranks_of_node(node);
    EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
    EXPECT_EQ(grid.leader(node), ranks.front());
    if (node > 0) {
      EXPECT_LT(grid.leader(node - 1), grid.leader(node)) << "nodes by lowest rank";
    }
    even = even && ranks.size() == grid.ranks_of_node(0).size();
    ranks_seen += static_cast<int>(ranks.size());
  }
  EXPECT_EQ(ranks_seen, world_size);
  EXPECT_EQ(grid.is_even(), even);

  for (int rank = 0; rank < world_size; ++rank) {
    const std::vector<int>& ranks = grid.ranks_of_node(grid.node(rank));
    EXPECT_EQ(grid.node_id(grid.node(rank)), ids[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(ranks.at(static_cast<std::size_t>(grid.local_rank(rank))), rank);
    EXPECT_EQ(grid.local_size(rank), static_cast<int>(ranks.size()));

    const std::vector<int> cross = grid.cross_group(rank);
    EXPECT_EQ(grid.cross_size(rank), static_cast<int>(cross.size()));
    EXPECT_EQ(cross.at(static_cast<std::size_t>(grid.cross_rank(rank))), rank);
    for (const int other : cross) {
      EXPECT_EQ(grid.local_rank(other), grid.local_rank(rank));
      EXPECT_EQ(grid.same_node(rank, other), rank == other);
    }
  }
}

TEST(ProcessGrid, HoldsForAllShapesOfOneToSixteenRanks) {
  for (int size = 1; size <= 16; ++size) {
    for (int nodes = 1; nodes <= size; ++nodes) {
      std::vector<std::string> blocked;
      std::vector<std::string> interleaved;
      for (int rank = 0; rank < size; ++rank) {
        blocked.push_back("n" + std::to_string(rank * nodes / size));  // uneven if necessary
        interleaved.push_back("n" + std::to_string(rank % nodes));
      }
      SCOPED_TRACE(testing::Message() << size << " ranks on " << nodes << " nodes");
      expect_consistent(blocked);
      expect_consistent(interleaved);
    }
  }
}

TEST(ProcessGrid, HoldsForRandomPlacement) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> ids(1 + random() % 16);
    for (std::string& id : ids) id = "n" + std::to_string(random() % 5);
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    expect_consistent(ids);
  }
}

TEST(ProcessGrid, NumbersNodesByLowestRank) {
  const ProcessGrid grid({"z", "a", "z", "m", "a"});
  EXPECT_EQ(grid.node_id(0), "z");
  EXPECT_EQ(grid.node_id(1), "a");
  EXPECT_EQ(grid.node_id(2), "m");
  EXPECT_THAT(grid.ranks_of_node(1), ElementsAre(1, 4));
  EXPECT_THAT(grid.cross_group(4), ElementsAre(2, 4));
  EXPECT_EQ(grid.cross_rank(4), 1);
}

TEST(ProcessGrid, UnevenNodesHaveShorterCrossGroups) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3, 2});
  EXPECT_FALSE(grid.is_even());
  EXPECT_THAT(grid.cross_group(0), ElementsAre(0, 3));
  EXPECT_THAT(grid.cross_group(2), ElementsAre(2));
  EXPECT_EQ(grid.local_size(4), 2);
}

TEST(ProcessGrid, RejectsMisuse) {
  EXPECT_THROW(ProcessGrid({}), std::invalid_argument);
  EXPECT_THROW(ProcessGrid::with_node_sizes({}), std::invalid_argument);
  EXPECT_THROW(ProcessGrid::with_node_sizes({2, 0}), std::invalid_argument);
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2});
  EXPECT_THROW(grid.node(2), std::out_of_range);
  EXPECT_THROW(grid.local_rank(-1), std::out_of_range);
  EXPECT_THROW(grid.leader(1), std::out_of_range);
}

}  // namespace
}  // namespace kolo
