#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "comm/collective/cost_model.h"

namespace kolo {
namespace {

constexpr std::size_t mib(std::size_t count) { return count << 20; }

std::vector<ProcessGrid> device_grids() {
  std::vector<ProcessGrid> result;
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{
           {1}, {2}, {8}, {1, 1}, {2, 2}, {8, 8}, {3, 2}, {1, 1, 1, 1, 1}, {8, 8, 8, 8}}) {
    result.push_back(ProcessGrid::with_node_sizes(sizes));
  }
  return result;
}

std::vector<std::size_t> device_sizes() {
  std::vector<std::size_t> result{0};
  for (std::size_t bytes = 1; bytes <= mib(1024); bytes *= 4) result.push_back(bytes);
  return result;
}

double predict_us(const CostModel& model, const std::string& algorithm, std::size_t bytes,
                  std::size_t unit_bytes = kDeviceUnitBytes) {
  return model.predict_device_us(Algorithm::parse(algorithm), bytes, unit_bytes);
}

double ring_us(const CostModel& model, std::size_t bytes,
               std::size_t unit_bytes = kDeviceUnitBytes) {
  return predict_us(model, "hierarchical:native,ring", bytes, unit_bytes);
}

std::vector<std::string> names_of(const DeviceLimits& limits) {
  std::vector<std::string> names;
  for (const Algorithm& each : CostModel::device_algorithms(limits)) {
    names.push_back(each.to_string());
  }
  return names;
}

TEST(DeviceCostModel, ChoosesTheLowestPredictionAmongWhatIsAllowed) {
  for (const ProcessGrid& grid : device_grids()) {
    const CostModel model(grid, {});
    for (const DeviceLimits& limits :
         {DeviceLimits{}, DeviceLimits{.reproducible = true},
          DeviceLimits{.native_spans_nodes = false},
          DeviceLimits{.reproducible = true, .native_spans_nodes = false}}) {
      const std::vector<std::string> names = names_of(limits);
      for (const std::size_t bytes : device_sizes()) {
        double best = std::numeric_limits<double>::infinity();
        for (const std::string& name : names) best = std::min(best, predict_us(model, name, bytes));
        const std::string chosen = model.choose_device(bytes, limits).to_string();
        EXPECT_THAT(names, testing::Contains(chosen));
        EXPECT_EQ(predict_us(model, chosen, bytes), best);
        if (names.front() == "native" && predict_us(model, "native", bytes) == best) {
          EXPECT_EQ(chosen, "native");
        }
      }
    }
  }
}

TEST(DeviceCostModel, KeepsToItsLimits) {
  EXPECT_THAT(names_of({.reproducible = true, .native_spans_nodes = false}),
              testing::ElementsAre("hierarchical:native,direct"));
  EXPECT_THAT(names_of({.native_spans_nodes = false}), testing::Not(testing::Contains("native")));
  EXPECT_EQ(names_of({}).front(), "native");
}

TEST(DeviceCostModel, PredictionsGrowWithBytesUpToAUnit) {
  for (const ProcessGrid& grid : device_grids()) {
    const CostModel model(grid, {});
    for (const std::string& name : names_of({})) {
      double previous = 0;
      for (std::size_t bytes = 0; bytes <= kDeviceUnitBytes; bytes += kDeviceUnitBytes / 16) {
        const double predicted = predict_us(model, name, bytes);
        EXPECT_GE(predicted, previous) << name << ", " << bytes << " bytes";
        previous = predicted;
      }
    }
  }
}

// With latency a and S bytes at rate b, by hand.
TEST(DeviceCostModel, AgreesWithTheFormulas) {
  LinkCosts costs;
  costs.network.latency_us = 100;
  costs.network.bytes_per_us = 1;
  costs.device = {.latency_us = 2, .bytes_per_us = 10};
  costs.staging = {.latency_us = 5, .bytes_per_us = 4};
  costs.native_network = {.latency_us = 50, .bytes_per_us = 2};

  const CostModel node(ProcessGrid::with_node_sizes({4}), costs);
  EXPECT_DOUBLE_EQ(predict_us(node, "native", 400), 2 + 60);  // a + 2(n-1)/n S/b
  EXPECT_DOUBLE_EQ(ring_us(node, 400), 2 * (2 + 30));

  const CostModel two(ProcessGrid::with_node_sizes({2, 2}), costs);
  EXPECT_DOUBLE_EQ(predict_us(two, "native", 400),
                   2 + 2 * 50 + 200);  // The network is the slower part.
  // Halves of collectives, copies of a rank's 2(H-1)/H S/2, ring between nodes: one after the
  // other. Two messages are sent and two received, each of which takes a copy and 1 us.
  const double collectives = 2 * (2 + 20), copy = 2 * 5 + 50, exchange = 2 * (100 + 200) + 4;
  const double one_unit = collectives + 2 * copy + exchange;
  EXPECT_DOUBLE_EQ(ring_us(two, 400), one_unit);
  // Four units: the slowest stage sets the pace of the other three.
  EXPECT_DOUBLE_EQ(ring_us(two, 1600, 400), one_unit + 3 * exchange);

  // Nothing is slow alone: two units are under way, so half of a unit's time is the pace.
  costs.network.latency_us = 0;
  costs.network.bytes_per_us = 8;
  const CostModel balanced(ProcessGrid::with_node_sizes({2, 2}), costs);
  const double all = 44 + 2 * 60 + 54;
  EXPECT_DOUBLE_EQ(ring_us(balanced, 800, 400), all + all / 2);

  const CostModel four(ProcessGrid::with_node_sizes({1, 1, 1, 1}), costs);
  EXPECT_DOUBLE_EQ(predict_us(four, "native", 400),
                   2 + 4 * 50 + 300);  // Nothing goes inside a node.
  // In each of two rounds three messages are copied, one after the other, and then the last of them
  // to the peer's device; the bytes are 2(H-1)/H S each way.
  EXPECT_DOUBLE_EQ(predict_us(four, "hierarchical:native,direct", 400),
                   2 * (3 + 1) * 5 + 2 * 150 + 12 + 75);
}

TEST(DeviceCostModel, PrefersTheLibraryUnlessItsNetworkIsPoor) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({8, 8});
  EXPECT_EQ(CostModel(ProcessGrid::with_node_sizes({8}), {}).choose_device(mib(64)).to_string(),
            "native");
  EXPECT_EQ(CostModel(grid, {}).choose_device(mib(64)).to_string(), "native");
  LinkCosts sockets;
  sockets.network.bytes_per_us = 12'000;
  EXPECT_THAT(CostModel(grid, sockets).choose_device(mib(256)).to_string(),
              testing::StartsWith("hierarchical:native,"));
}

TEST(DeviceCostModel, SaysWhy) {
  LinkCosts costs;
  costs.device = {.latency_us = 0, .bytes_per_us = 1};
  const CostModel node(ProcessGrid::with_node_sizes({2}), costs);
  EXPECT_EQ(node.explain_device(Algorithm::parse("native"), 5200),
            "native: 5.2 ms predicted; hierarchical:native,direct 5.2 ms");
  EXPECT_EQ(node.explain_device(Algorithm::parse("hierarchical:native,ring"), 100),
            "hierarchical:native,ring: 100.0 us predicted; native 100.0 us");
  EXPECT_EQ(node.explain_device(Algorithm::parse("tree"), 100, {.native_spans_nodes = false}),
            "tree: 20.6 us predicted; hierarchical:native,direct 100.0 us");
}

}  // namespace
}  // namespace kolo
