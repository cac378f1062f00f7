#include "fusion/gradient_divisor.h"

#include <gmock/gmock.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Two gradients of one of three ranks, with their weights.
struct DividedPair {
  explicit DividedPair(Divisor by) : divisor(by, views, 3) {}

  std::vector<float> first = {1, 2, 3};
  std::vector<float> second = {4, 5};
  std::vector<double> weights = {-1, -1};
  std::vector<BufferView> views = {{first.data(), 3, DType::kFloat32},
                                   {second.data(), 2, DType::kFloat32},
                                   {weights.data(), 2, DType::kFloat64}};
  GradientDivisor divisor;
};

TEST(GradientDivisor, AddsWeightsWhereTheyAreNeeded) {
  const std::vector<GradientSpec> gradients = {{.name = "a"}, {.name = "b"}};
  EXPECT_EQ(GradientDivisor::with_weights(gradients, Divisor::kAllRanks).size(), 2u);
  const auto divided = GradientDivisor::with_weights(gradients, Divisor::kSamples);
  ASSERT_EQ(divided.size(), 3u);
  EXPECT_EQ(divided[2].count(), 2u);
  // This holds for any wire dtype of the set.
  EXPECT_EQ(divided[2].wire_dtype, DType::kFloat64);
}

TEST(GradientDivisor, CountsRanksThatContribute) {
  DividedPair pair(Divisor::kContributingRanks);
  pair.divisor.check_weight();
  pair.divisor.contribute(0);
  pair.divisor.lacks(1);
  EXPECT_THAT(pair.weights, ElementsAre(1, 0));
  EXPECT_THAT(pair.first, ElementsAre(1, 2, 3));
  // All three ranks contribute to the first gradient, and one rank to the second.
  pair.weights = {1 - 0x1p-53, 1.0 / 3};
  pair.divisor.divide();
  EXPECT_THAT(pair.first, ElementsAre(1, 2, 3));
  EXPECT_THAT(pair.second, ElementsAre(12, 15));
}

TEST(GradientDivisor, MultipliesBySamplesAndDividesByTheirAverage) {
  DividedPair pair(Divisor::kSamples);
  pair.divisor.set_samples(2.5);
  pair.divisor.contribute(0);
  pair.divisor.contribute(1);
  EXPECT_THAT(pair.weights, Each(2.5));
  EXPECT_THAT(pair.first, ElementsAre(2.5, 5, 7.5));
  pair.weights = {4, 0.5};
  pair.divisor.divide();
  EXPECT_THAT(pair.first, ElementsAre(0.625, 1.25, 1.875));
  EXPECT_THAT(pair.second, ElementsAre(20, 25));
}

TEST(GradientDivisor, DividesAGradientOnce) {
  for (const Divisor divisor : {Divisor::kContributingRanks, Divisor::kSamples}) {
    DividedPair pair(divisor);
    pair.weights = {0.5, 1.0 / 3};
    const float factor = divisor == Divisor::kSamples ? 2.0F : 1.5F;  // divided by 1.5 ranks
                                                                      // instead of 2
    pair.divisor.divide(0);
    pair.divisor.divide(0);
    EXPECT_THAT(pair.first, ElementsAre(factor, 2 * factor, 3 * factor));
    EXPECT_THAT(pair.second, ElementsAre(4, 5));
    pair.divisor.divide();
    EXPECT_THAT(pair.first, ElementsAre(factor, 2 * factor, 3 * factor));
    EXPECT_THAT(pair.second, ElementsAre(12, 15));
  }
}

TEST(GradientDivisor, TakesNothingOfARankWithoutSamples) {
  DividedPair pair(Divisor::kSamples);
  pair.first = {kNaN, kNaN, kNaN};
  pair.divisor.set_samples(0);
  pair.divisor.contribute(0);
  EXPECT_THAT(pair.first, Each(0));
  EXPECT_EQ(pair.weights[0], 0);
}

TEST(GradientDivisor, LeavesGradientsThatNoRankHas) {
  for (const Divisor divisor : {Divisor::kContributingRanks, Divisor::kSamples}) {
    DividedPair pair(divisor);
    pair.first = {0, 0, 0};
    pair.weights = {0, 0};
    pair.divisor.divide();
    EXPECT_THAT(pair.first, Each(0));
  }
}

TEST(GradientDivisor, RefusesSamplesThatAreNoneAndThoseThatAreMissing) {
  DividedPair pair(Divisor::kSamples);
  EXPECT_THROW(pair.divisor.check_weight(), UsageError);
  for (const double samples :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(pair.divisor.set_samples(samples), UsageError);
  }
  EXPECT_THROW(DividedPair(Divisor::kContributingRanks).divisor.set_samples(1), UsageError);
}

}  // namespace
}  // namespace kolo
