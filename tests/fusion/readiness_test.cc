#include "fusion/readiness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace kolo {
namespace {

// Buckets of 3, 1 and 2 gradients.
Plan plan_of_three() {
  Plan plan;
  plan.bucket_of = {0, 1, 0, 2, 0, 2};
  plan.buckets.resize(3);
  for (std::size_t gradient = 0; gradient < plan.bucket_of.size(); ++gradient) {
    plan.buckets[plan.bucket_of[gradient]].segments.push_back(
        {.gradient = gradient, .offset = 0, .count = 0});
  }
  return plan;
}

TEST(Readiness, TellsABucketWithItsLastGradientInAnyOrderInEveryIteration) {
  constexpr unsigned kSeed = 4;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const Plan plan = plan_of_three();
  Readiness readiness(plan);
  std::vector<std::size_t> order(plan.bucket_of.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int iteration = 0; iteration < 200; ++iteration) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::size_t> marked(plan.buckets.size());
    for (std::size_t gradient : order) {
      const std::size_t bucket = plan.bucket_of[gradient];
      ++marked[bucket];
      const auto ready = readiness.mark(gradient);
      ASSERT_EQ(ready.has_value(), marked[bucket] == plan.buckets[bucket].segments.size());
      if (ready) {
        ASSERT_EQ(*ready, bucket);
      }
    }
  }
}

// Buckets are independent: one may be in its next iteration while another has not begun.
TEST(Readiness, ABucketDoesNotWaitForOthers) {
  Readiness readiness(plan_of_three());
  EXPECT_EQ(readiness.mark(1), 1u);
  EXPECT_EQ(readiness.mark(1), 1u);
  EXPECT_EQ(readiness.mark(3), std::nullopt);
  EXPECT_EQ(readiness.mark(1), 1u);
  EXPECT_EQ(readiness.mark(5), 2u);
}

}  // namespace
}  // namespace kolo
