#include "runtime/calls/row_sums/row_owners.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace kolo::test {
namespace {

using Indices = std::vector<std::int64_t>;

struct Owned {
  RowOwners owners;
  std::vector<std::size_t> counts;
  RowTraffic traffic() const {
    int ranks = 1;
    while (ranks * ranks < static_cast<int>(counts.size())) ++ranks;
    return {.ranks = ranks, .counts = counts};
  }
};

Owned owned(const std::vector<Indices>& of_ranks, std::size_t height) {
  const int ranks = static_cast<int>(of_ranks.size());
  std::vector<std::int64_t> all;
  for (const Indices& indices : of_ranks) {
    const auto description = describe_rows(indices, ranks);
    all.insert(all.end(), description.begin(), description.end());
  }
  Owned result{.owners = RowOwners(all, ranks, height), .counts = {}};
  for (const Indices& indices : of_ranks) {
    const auto counts = result.owners.counts(indices);
    EXPECT_EQ(counts.size(), of_ranks.size());
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), indices.size());
    result.counts.insert(result.counts.end(), counts.begin(), counts.end());
  }
  EXPECT_EQ(result.owners.end(ranks - 1), static_cast<std::int64_t>(height));
  for (int owner = 1; owner < ranks; ++owner) {
    EXPECT_LE(result.owners.end(owner - 1), result.owners.end(owner));
  }
  return result;
}

TEST(RowOwners, OfEmptyRanks) {
  EXPECT_EQ(owned({{}, {}, {}}, 5).traffic().busiest(), 0U);
  EXPECT_EQ(owned({{}, {2}, {}}, 5).traffic().busiest(), 1U);
  EXPECT_EQ(owned({{}}, 0).traffic().busiest(), 0U);
  EXPECT_EQ(owned({{0, 1, 2}}, 3).traffic().received(0), 3U);
}

TEST(RowOwners, OfOneIndexThatAllHave) {
  const Owned all = owned({{4}, {4}, {4}}, 9);
  EXPECT_EQ(all.traffic().busiest(), 3U);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all.traffic().sent(rank), 1U);
}

TEST(RowOwners, ShareOneRanksRowsEqually) {
  Indices all(100);
  std::iota(all.begin(), all.end(), 0);
  const Owned split = owned({all, {}, {}, {}}, 100);
  for (int owner = 0; owner < 4; ++owner) EXPECT_EQ(split.traffic().received(owner), 25U);
}

// By Zipf's law, low indices are frequent. No owner has more than twice its share plus a row per
// rank.
TEST(RowOwners, AreBalancedHoweverIndicesLie) {
  constexpr std::size_t kHeight = 50'000;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 9);
    std::vector<Indices> of_ranks;
    std::size_t all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::set<std::int64_t> drawn;
      const std::size_t draws = random() % 3000;
      for (std::size_t i = 0; i < draws; ++i) {
        const double uniform = std::generate_canonical<double, 32>(random);
        drawn.insert(static_cast<std::int64_t>(std::pow(kHeight, uniform)) - 1);
      }
      of_ranks.emplace_back(drawn.begin(), drawn.end());
      all += drawn.size();
    }
    const Owned split = owned(of_ranks, kHeight);
    const std::size_t share = all / static_cast<std::size_t>(ranks);
    for (int owner = 0; owner < ranks; ++owner) {
      EXPECT_LE(split.traffic().received(owner), 2 * share + 2 * static_cast<std::size_t>(ranks))
          << "seed " << seed;
    }
  }
}

TEST(RowOwners, ExpectDistinctRows) {
  Indices all(40);
  std::iota(all.begin(), all.end(), 0);
  const Owned full = owned({all, all}, 40);
  EXPECT_DOUBLE_EQ(full.traffic().distinct(full.owners), 40);
  const Owned one = owned({all, {}}, 40);
  EXPECT_DOUBLE_EQ(one.traffic().distinct(one.owners), 40);
  // Each of two ranks has ten of a hundred rows, and one row is on both.
  Indices few;
  for (std::int64_t i = 0; i < 10; ++i) few.push_back(10 * i);
  const Owned sparse = owned({few, few}, 100);
  EXPECT_NEAR(sparse.traffic().distinct(sparse.owners), 19, 1);
}

struct Shape {
  const char* name;
  ProcessGrid grid;
};

TEST(RowPrice, FavoursRowsIfTheyAreFew) {
  for (const Shape& shape : {Shape{"a node", ProcessGrid::with_node_sizes({4})},
                             Shape{"two nodes", ProcessGrid::with_node_sizes({2, 2})},
                             Shape{"uneven nodes", ProcessGrid::with_node_sizes({3, 1, 2})}}) {
    const Options options;
    const LinkCosts costs;
    const PlanInputs inputs{.grid = shape.grid, .options = options, .costs = costs};
    RowSize size{.height = 50'000, .width = 256, .busiest = 1000, .distinct = 2500};
    const RowPrices few = price_rows(size, inputs);
    EXPECT_LT(few.rows_us, few.table_us) << shape.name;
    size.busiest = size.distinct = 50'000;
    const RowPrices all = price_rows(size, inputs);
    EXPECT_GT(all.rows_us, all.table_us) << shape.name;
    EXPECT_EQ(all.table_us, few.table_us) << shape.name;
  }
}

TEST(RowPrice, FavoursATinyTable) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  const Options options;
  const LinkCosts costs;
  const PlanInputs inputs{.grid = grid, .options = options, .costs = costs};
  const RowPrices prices =
      price_rows({.height = 100, .width = 4, .busiest = 1, .distinct = 2}, inputs);
  EXPECT_GT(prices.rows_us, prices.table_us);
}

}  // namespace
}  // namespace kolo::test
