#include "trainer/shards/shard_plan.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "trainer/parameter_set.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kSizes[] = {1, 7, 16, 33, 1000, 64, 5, 257};

class ShardPlanTest : public testing::TestWithParam<std::size_t> {
 protected:
  ShardPlanTest() {
    for (const std::size_t size : kSizes) {
      parameters_.add("of " + std::to_string(parameters_.size()), {size}, {});
    }
  }

  const std::size_t ranks_ = GetParam();
  ParameterSet parameters_{1};
};

TEST_P(ShardPlanTest, EveryElementHasOneOwnerAndOwnersComeInOrder) {
  for (const std::size_t bucket_bytes : {0u, 400u, 4096u, 1u << 20}) {
    const ShardPlan plan(parameters_, ranks_, bucket_bytes);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      std::size_t next = 0;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const ElementRange range = plan.range(i, rank);
        if (range.count > 0) {
          EXPECT_EQ(range.begin, next);
        }
        next += range.count;
      }
      EXPECT_EQ(next, parameters_[i].size());
    }
  }
}

// A rank owns at most its part of each bucket. Padding is between parameters and at the end.
TEST_P(ShardPlanTest, PartsAreEqualButForPadding) {
  const ShardPlan plan(parameters_, ranks_, 1200);
  ASSERT_GT(plan.buckets().size(), 2u);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    for (const ShardPlan::Bucket& bucket : plan.buckets()) {
      std::size_t owned = 0;
      for (const ShardPlan::Segment& segment : bucket.segments) {
        owned += plan.range(segment.parameter, rank).count;
      }
      EXPECT_LE(owned, plan.part_count(bucket));
    }
  }
  for (const ShardPlan::Bucket& bucket : plan.buckets()) {
    EXPECT_EQ(bucket.count % (ranks_ * ShardPlan::kAlignment), 0u);
  }
}

TEST_P(ShardPlanTest, BucketsKeepTheirLimitAndBeginWithTheLastParameter) {
  const std::size_t limit = 1200;
  const ShardPlan plan(parameters_, ranks_, limit);
  std::size_t next = parameters_.size();
  for (const ShardPlan::Bucket& bucket : plan.buckets()) {
    for (const ShardPlan::Segment& segment : bucket.segments) {
      EXPECT_EQ(segment.parameter, --next);
      EXPECT_EQ(plan.bucket_of(segment.parameter), &bucket - plan.buckets().data());
      const std::size_t end = segment.offset + parameters_[segment.parameter].size();
      EXPECT_TRUE(bucket.segments.size() == 1 || end * sizeof(float) <= limit);
    }
  }
  EXPECT_EQ(next, 0u);
}

TEST_P(ShardPlanTest, TablesWithRowsAreLeftOut) {
  parameters_.add_table("table", 10, 4, {});
  parameters_.use_rows();
  const ShardPlan plan(parameters_, ranks_, 4096);
  EXPECT_FALSE(plan.bucket_of(parameters_.size() - 1));
  EXPECT_TRUE(plan.bucket_of(0));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardPlanTest, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace kolo::trainer
