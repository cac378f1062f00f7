#include "runtime/plan/bucket_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kolo {
namespace {

const std::vector<int> kOneNode = {4}, kTwoNodes = {2, 2};

TEST(BitsDependOnBuckets, UnlessSumsAreMadeInOneOrderWhateverTheSize) {
  const auto depend = [](const std::string& algorithm, const std::vector<int>& nodes) {
    return bits_depend_on_buckets(AlgorithmRequest(algorithm), ProcessGrid::with_node_sizes(nodes));
  };
  EXPECT_FALSE(depend("auto", kOneNode));
  EXPECT_TRUE(depend("auto", kTwoNodes));
  for (const auto& nodes : {kOneNode, kTwoNodes}) {
    EXPECT_FALSE(depend("direct", nodes));
    EXPECT_FALSE(depend("hierarchical:direct,direct", nodes));
    EXPECT_TRUE(depend("ring", nodes));
    EXPECT_TRUE(depend("hierarchical", nodes));
    EXPECT_TRUE(depend("hierarchical:direct,ring", nodes));
  }
}

TEST(MeasuresOrder, IsWhatTheOptionSays) {
  const std::vector<GradientSpec> gradients = {{.name = "a"}, {.name = "b"}};
  const auto measures = [&](const std::string& order, const std::vector<int>& nodes) {
    const Options options{.bucket_order = order};
    return measures_order(options, {}, ProcessGrid::with_node_sizes(nodes), gradients, 2);
  };
  EXPECT_TRUE(measures("auto", kOneNode));
  EXPECT_FALSE(measures("auto", kTwoNodes));
  EXPECT_TRUE(measures("measured", kTwoNodes));
  EXPECT_FALSE(measures("registered", kOneNode));
}

TEST(MeasuresOrder, NotWhereItCannotMatter) {
  std::vector<GradientSpec> gradients = {{.name = "a"}, {.name = "b"}};
  const Options options{.bucket_order = "measured"};
  const ProcessGrid grid = ProcessGrid::with_node_sizes(kOneNode);
  const ProcessGrid alone = ProcessGrid::with_node_sizes({1});
  EXPECT_TRUE(measures_order(options, {}, grid, gradients, 2));
  EXPECT_FALSE(measures_order(options, {}, alone, gradients, 2));
  EXPECT_FALSE(measures_order(options, {}, grid, gradients, 1));
  gradients[1].memory = MemoryKind::kDevice;
  EXPECT_FALSE(measures_order(options, {}, grid, gradients, 2));
}

TEST(Urgency, IsThatOfTheGradientThatIsNeededFirst) {
  const auto urgency = [](const std::vector<std::size_t>& gradients) {
    PlannedBucket bucket;
    for (const std::size_t gradient : gradients) bucket.segments.push_back({.gradient = gradient});
    return urgency_of(bucket, 5);
  };
  EXPECT_EQ(urgency({0}), 1u);
  EXPECT_LT(urgency({1, 0}), urgency({3, 2}));
  EXPECT_LT(urgency({3, 2}), urgency({4}));
  EXPECT_EQ(urgency({5}), urgency({0})) << "weights";
}

TEST(Fingerprint, TellsPlansApart) {
  const auto plan = [](const std::vector<std::vector<std::size_t>>& buckets) {
    Plan result;
    for (const auto& gradients : buckets) {
      PlannedBucket& bucket = result.buckets.emplace_back();
      for (const std::size_t gradient : gradients)
        bucket.segments.push_back({.gradient = gradient});
    }
    return fingerprint(result);
  };
  EXPECT_EQ(plan({{2, 1}, {0}}), plan({{2, 1}, {0}}));
  EXPECT_NE(plan({{2, 1}, {0}}), plan({{2}, {1, 0}}));
  EXPECT_NE(plan({{2, 1}, {0}}), plan({{1, 2}, {0}}));
  EXPECT_NE(plan({}), 0u);
}

}  // namespace
}  // namespace kolo
