#include "benchmarks/collective/paired_rounds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "comm/base/error.h"

namespace kolo::bench {
namespace {

constexpr int kRounds = 40;

TEST(PairedRounds, WhatSlowsBothDownCancelsOut) {
  RoundTimes slow, fast;
  for (int round = 0; round < kRounds; ++round) {
    const double drift = 1 + round;  // Up to 40 times slower.
    fast.push_back(2 * drift);
    slow.push_back(3 * drift);
  }
  const PairedRatio ratio = paired_ratio(slow, fast);
  EXPECT_DOUBLE_EQ(ratio.median, 1.5);
  EXPECT_DOUBLE_EQ(ratio.low, 1.5);
  EXPECT_DOUBLE_EQ(ratio.high, 1.5);
  EXPECT_EQ(ratio.slower_share, 1);
  EXPECT_EQ(paired_ratio(fast, slow).slower_share, 0);
}

TEST(PairedRounds, SaysHowOftenItWasMuchSlower) {
  const PairedRatio ratio =
      paired_ratio(std::vector<double>{10, 10.5, 12, 20}, std::vector<double>(4, 10.0));
  EXPECT_DOUBLE_EQ(ratio.median, 1.125);
  EXPECT_EQ(ratio.slower_share, 0.5);
}

// Of eight that are equal but for noise, the one that was luckiest is no better than the others.
TEST(PairedRounds, LuckDoesNotJudge) {
  double sum = 0;
  constexpr int kRuns = 200;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    std::mt19937_64 random(seed);
    const auto rounds = [&] {
      RoundTimes times;
      for (int i = 0; i < kRounds; ++i) {
        times.push_back(std::uniform_real_distribution<>(1, 2)(random));
      }
      return times;
    };
    const RoundTimes chosen = rounds();
    std::vector<RoundTimes> others;
    for (int i = 0; i < 8; ++i) others.push_back(rounds());
    sum += best_rival(chosen, others).ratio.median;
  }
  EXPECT_NEAR(sum / kRuns, 1, 0.03);
}

TEST(PairedRounds, FindsTheBestOfThoseThatStayed) {
  const RoundTimes chosen(4, 11.0);
  const std::vector<RoundTimes> others = {{20, 20, 20, 20}, {1, 1}, {10, 10, 10, 10}};
  const Rivalry rivalry = best_rival(chosen, others);
  EXPECT_EQ(rivalry.best, 2u);
  EXPECT_DOUBLE_EQ(rivalry.ratio.median, 1.1);
}

TEST(PairedRounds, RefusesWhatCannotBeCompared) {
  EXPECT_THROW(paired_ratio({}, {}), UsageError);
  EXPECT_THROW(paired_ratio(RoundTimes{1}, RoundTimes{1, 2}), UsageError);
  EXPECT_THROW(best_rival(RoundTimes{1}, std::vector<RoundTimes>{{1}}), UsageError);
  EXPECT_THROW(best_rival(RoundTimes{1, 2}, std::vector<RoundTimes>{{1}}), UsageError);
}

}  // namespace
}  // namespace kolo::bench
