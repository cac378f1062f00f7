#include "fusion/measured_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace kolo {
namespace {

using Order = std::vector<std::size_t>;

constexpr std::size_t kCount = 32;          // elements of a gradient
constexpr std::size_t kBytes = kCount * 4;  // and bytes
constexpr std::size_t kFusionBytes = 4 * kBytes;

enum class Memory { kArena, kUser };

/// A set of equal gradients, last registered first in the arena.
struct Set {
  Set(std::size_t size, Memory memory) {
    for (std::size_t i = 0; i < size; ++i) {
      gradients.push_back({.name = std::to_string(i),
                           .shape = {kCount},
                           .data = memory == Memory::kUser ? &place : nullptr});
    }
    options.fusion_bytes = kFusionBytes;
    options.order.resize(size);
    std::iota(options.order.rbegin(), options.order.rend(), std::size_t{0});
    current = plan_buckets(gradients, options);
  }

  std::optional<Plan> measured(const Order& order) const {
    PlannerOptions by_order = options;
    by_order.place_order = options.order;
    by_order.order = order;
    return better_plan(gradients, by_order, current);
  }
  Order reversed() const { return options.order; }

  int place = 0;
  std::vector<GradientSpec> gradients;
  PlannerOptions options;
  Plan current;
};

/// Gradients of each bucket.
std::vector<std::set<std::size_t>> members(const Plan& plan) {
  std::vector<std::set<std::size_t>> result;
  for (const PlannedBucket& bucket : plan.buckets) {
    auto& bucket_members = result.emplace_back();
    for (const PlannedSegment& segment : bucket.segments) bucket_members.insert(segment.gradient);
  }
  return result;
}

class MeasuredPlan : public testing::TestWithParam<Memory> {};

TEST_P(MeasuredPlan, TheExpectedOrderLeadsToTheSameBuckets) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{40}}) {
    const Set set(size, GetParam());
    EXPECT_FALSE(set.measured(set.reversed()));
    PlannerOptions options = set.options;
    options.place_order = options.order;
    EXPECT_EQ(members(plan_buckets(set.gradients, options)), members(set.current));
  }
}

// 0 to 9 with four to a bucket: {9 .. 6}, {5 .. 2}, {1, 0}.
TEST_P(MeasuredPlan, AGradientThatIsReadyLastLeavesTheFirstBucket) {
  const Set set(10, GetParam());
  const auto plan = set.measured({8, 7, 6, 5, 4, 3, 2, 1, 0, 9});
  ASSERT_TRUE(plan);
  EXPECT_EQ(members(*plan)[0], (std::set<std::size_t>{8, 7, 6, 5}));
  EXPECT_TRUE(members(*plan).back().contains(9));
  EXPECT_LE(members(*plan).back().size(), 2u);
}

// Buckets are ready one after the other all the same.
TEST_P(MeasuredPlan, TheOppositeOrderLeavesTheBuckets) {
  const Set set(9, GetParam());
  EXPECT_FALSE(set.measured({0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

// Neighbours change places inside buckets: nothing is ready earlier.
TEST_P(MeasuredPlan, SmallDifferencesChangeNothing) {
  const Set set(16, GetParam());
  Order order = set.reversed();
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) std::swap(order[i], order[i + 1]);
  EXPECT_FALSE(set.measured(order));
}

TEST_P(MeasuredPlan, WithoutFusionNothingIsToBeGained) {
  Set set(10, GetParam());
  set.options.fusion_bytes = 0;
  set.current = plan_buckets(set.gradients, set.options);
  EXPECT_FALSE(set.measured({3, 1, 4, 5, 9, 2, 6, 8, 7, 0}));
}

TEST_P(MeasuredPlan, IsTakenOnlyIfItLeavesLess) {
  std::size_t taken = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Set set(40, GetParam());
    Order order = set.reversed();
    std::mt19937 random(seed);
    // Some gradients come at another time.
    for (unsigned i = 0; i < seed % 5; ++i) {
      std::swap(order[random() % order.size()], order[random() % order.size()]);
    }
    const auto plan = set.measured(order);
    if (!plan) continue;
    ++taken;
    const std::size_t each = kFusionBytes * kFusionBytes / (40 * kBytes);
    EXPECT_LT(exposed_bytes(*plan, order, each), exposed_bytes(set.current, order, each));
  }
  EXPECT_GT(taken, 20u);
}

INSTANTIATE_TEST_SUITE_P(Memories, MeasuredPlan, testing::Values(Memory::kArena, Memory::kUser),
                         [](const auto& tested) {
                           return tested.param == Memory::kArena ? "Arena" : "User";
                         });

TEST(ExposedBytes, AreThoseAfterTheLastGradient) {
  const Set set(10, Memory::kArena);
  // Sending began when the first bucket was ready, and never paused.
  EXPECT_EQ(exposed_bytes(set.current, set.reversed(), 0), 4 * kBytes);
  // The first bucket waits for gradient 9.
  EXPECT_EQ(exposed_bytes(set.current, Order{8, 7, 6, 5, 4, 3, 2, 1, 0, 9}, 0), 7 * kBytes);
  EXPECT_EQ(exposed_bytes(set.current, set.reversed(), kBytes / 2), 5 * kBytes + kBytes / 2);
}

}  // namespace
}  // namespace kolo
