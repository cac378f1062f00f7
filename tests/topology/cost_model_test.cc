#include "topology/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace kolo {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<ProcessGrid> grids() {
  std::vector<ProcessGrid> result;
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{1},
                                                                     {2},
                                                                     {4},
                                                                     {7},
                                                                     {1, 1},
                                                                     {2, 2},
                                                                     {4, 4},
                                                                     {1, 1, 1, 1, 1},
                                                                     {3, 2},
                                                                     {4, 1},
                                                                     {2, 2, 2},
                                                                     {8, 8, 8, 8}}) {
    result.push_back(ProcessGrid::with_node_sizes(sizes));
  }
  result.push_back(ProcessGrid({"a", "b", "a", "b"}));
  return result;
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> result{0};
  for (std::size_t bytes = 1; bytes <= 1024 * kMiB; bytes *= 4) result.push_back(bytes);
  return result;
}

TEST(CostModel, PredictionsGrowWithBytes) {
  for (const ProcessGrid& grid : grids()) {
    const CostModel model(grid, {});
    for (const std::string& name : CostModel::algorithms()) {
      double previous = 0;
      for (const std::size_t bytes : sizes()) {
        const double predicted = model.predict_us(name, bytes);
        EXPECT_GE(predicted, previous) << name << ", " << bytes << " bytes";
        previous = predicted;
      }
    }
  }
}

TEST(CostModel, ChoosesTheLowestPrediction) {
  for (const ProcessGrid& grid : grids()) {
    const CostModel model(grid, {});
    for (const std::size_t bytes : sizes()) {
      double best = std::numeric_limits<double>::infinity();
      double best_reproducible = best;
      for (const std::string& name : CostModel::algorithms()) {
        best = std::min(best, model.predict_us(name, bytes));
        if (CostModel::is_reproducible(name)) {
          best_reproducible = std::min(best_reproducible, model.predict_us(name, bytes));
        }
      }
      EXPECT_EQ(model.predict_us(model.choose(bytes, false), bytes), best);
      const std::string reproducible = model.choose(bytes, true);
      EXPECT_TRUE(reproducible == "direct" || reproducible == "hierarchical:direct,direct")
          << reproducible;
      EXPECT_EQ(model.predict_us(reproducible, bytes), best_reproducible);
    }
  }
}

TEST(CostModel, OneRankCostsNothing) {
  const CostModel model(ProcessGrid::with_node_sizes({1}), {});
  for (const std::string& name : CostModel::algorithms()) {
    EXPECT_EQ(model.predict_us(name, kMiB), 0) << name;
  }
}

// With latency a and S bytes at rate b, by hand.
TEST(CostModel, AgreesWithTheFormulas) {
  const LinkCosts costs{.memory = {.latency_us = 2, .bytes_per_us = 10},
                        .network = {.latency_us = 100, .bytes_per_us = 1}};
  const CostModel node(ProcessGrid::with_node_sizes({4}), costs);
  EXPECT_DOUBLE_EQ(node.ring_us(400), 6 * (2 + 10));    // 2(n-1)(a + S/nb)
  EXPECT_DOUBLE_EQ(node.direct_us(400), 2 * (2 + 30));  // 2(a + (n-1)S/nb)
  EXPECT_DOUBLE_EQ(node.halving_doubling_us(400), 2 * (2 + 20 + 2 + 10));
  EXPECT_DOUBLE_EQ(node.tree_us(400), 4 * (2 + 40));  // 2 log n (a + S/b)

  const CostModel network(ProcessGrid::with_node_sizes({1, 1, 1}), costs);
  EXPECT_DOUBLE_EQ(network.ring_us(300), 4 * (100 + 100));
  EXPECT_DOUBLE_EQ(network.direct_us(300), 2 * (200 + 200));
  EXPECT_DOUBLE_EQ(network.halving_doubling_us(300), 2 * (100 + 300 + 100 + 150));

  // Each node's link carries all parts; the local stages read half of the bytes.
  const CostModel both(ProcessGrid::with_node_sizes({2, 2}), costs);
  EXPECT_DOUBLE_EQ(both.hierarchical_us(400, "ring"), 2 * (2 + 20) + 2 * (100 + 200));
  // Node borders are crossed once per direction, or by every message.
  EXPECT_DOUBLE_EQ(both.ring_us(400), 6 * (100 + 100));
  const CostModel interleaved(ProcessGrid({"a", "b", "a", "b"}), costs);
  EXPECT_DOUBLE_EQ(interleaved.ring_us(400), 6 * (100 + 200));
}

TEST(CostModel, PrefersWhatTheDesignExpects) {
  EXPECT_EQ(CostModel(ProcessGrid::with_node_sizes({2}), {}).choose(kMiB, false), "direct");
  EXPECT_EQ(CostModel(ProcessGrid::with_node_sizes({8}), {}).choose(64 * kMiB, false), "direct");
  const CostModel cluster(ProcessGrid::with_node_sizes({4, 4, 4, 4}), {});
  EXPECT_TRUE(cluster.choose(64 * kMiB, false).starts_with("hierarchical:direct,"));
}

TEST(CostModel, HierarchicalStandsForTheBestCrossAlgorithm) {
  const CostModel model(ProcessGrid::with_node_sizes({2, 2, 2}), {});
  for (const std::size_t bytes : sizes()) {
    double best = std::numeric_limits<double>::infinity();
    for (const char* cross : {"ring", "direct", "halving_doubling", "tree"}) {
      best = std::min(best, model.hierarchical_us(bytes, cross));
    }
    EXPECT_EQ(model.predict_us("hierarchical", bytes), best);
  }
}

TEST(CostModel, RejectsUnknownNames) {
  const CostModel model(ProcessGrid::with_node_sizes({2, 2}), {});
  for (const char* name : {"", "rings", "hierarchical:", "hierarchical:ring,direct",
                           "hierarchical:direct,hierarchical", "hierarchical:direct,"}) {
    EXPECT_THROW(model.predict_us(name, 1), std::invalid_argument) << name;
  }
  EXPECT_THROW(model.hierarchical_us(1, "hierarchical"), std::invalid_argument);
}

}  // namespace
}  // namespace kolo
