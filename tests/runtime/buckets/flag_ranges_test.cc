#include "runtime/buckets/bucket_table.h"

#include <gtest/gtest.h>

#include <random>

namespace kolo {
namespace {

using Use = FlagRanges::Use;

TEST(FlagRanges, GoOnAboveWhatFlagsWereRaisedTo) {
  FlagRanges flags(10);
  const auto first = flags.take(4, Use::kIterations);
  const auto second = flags.take(4, Use::kIterations);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->first, 4u);
  EXPECT_EQ(second->raised_to, 0u);
  EXPECT_FALSE(flags.take(3, Use::kIterations)) << "two are left";
  flags.give_back(0, 4, 17);
  flags.give_back(4, 4, 5);
  const auto across = flags.take(6, Use::kIterations);
  ASSERT_TRUE(across);
  EXPECT_EQ(across->first, 0u);
  EXPECT_EQ(across->raised_to, 17u);
}

TEST(FlagRanges, NumbersOfLaunchesAreNotMixedWithThoseOfIterations) {
  FlagRanges flags(4);
  ASSERT_TRUE(flags.take(2, Use::kIterations));
  flags.give_back(0, 2, 9);
  const auto launches = flags.take(2, Use::kLaunches);
  ASSERT_TRUE(launches);
  EXPECT_EQ(launches->first, 2u);
  EXPECT_FALSE(flags.take(1, Use::kLaunches));
  EXPECT_TRUE(flags.take(1, Use::kIterations));
}

// The test compares with a model that stores every flag's holder and value.
TEST(FlagRanges, NeverOverlapNorFallBack) {
  struct Held {
    std::uint32_t first, count;
    std::uint64_t base;
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    constexpr std::uint32_t kFlags = 64;
    FlagRanges flags(kFlags);
    std::vector<std::uint64_t> heights(kFlags, 0);
    std::vector<bool> taken(kFlags, false);
    std::vector<Held> held;
    std::mt19937_64 random(seed);
    for (int step = 0; step < 300; ++step) {
      if (!held.empty() && random() % 2 == 0) {
        std::swap(held[random() % held.size()], held.back());
        const Held last = held.back();
        held.pop_back();
        const std::uint64_t raised_to = last.base + random() % 9;
        for (std::uint32_t i = last.first; i < last.first + last.count; ++i) {
          heights[i] = raised_to;
          taken[i] = false;
        }
        flags.give_back(last.first, last.count, raised_to);
        continue;
      }
      const auto count = static_cast<std::uint32_t>(1 + random() % 12);
      const auto range = flags.take(count, Use::kIterations);
      if (!range) continue;
      ASSERT_LE(range->first + count, kFlags);
      for (std::uint32_t i = range->first; i < range->first + count; ++i) {
        ASSERT_FALSE(taken[i]);
        ASSERT_GE(range->raised_to, heights[i]);
        taken[i] = true;
      }
      held.push_back({range->first, count, range->raised_to});
    }
  }
}

}  // namespace
}  // namespace kolo
