#include "benchmarks/common/samples.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <vector>

#include "comm/base/error.h"

namespace kolo::bench {
namespace {

TEST(Summarise, KnowsOneSample) {
  const Summary summary = summarise({3});
  EXPECT_EQ(summary.mean, 3);
  EXPECT_EQ(summary.median, 3);
  EXPECT_EQ(summary.min, 3);
  EXPECT_EQ(summary.p99, std::nullopt);
}

TEST(Summarise, TakesTheMiddleAndNotTheMean) {
  const Summary odd = summarise({100, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_NEAR(odd.mean, 103.0 / 3, 1e-12);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(summarise({4, 1, 2, 100}).median, 3);
}

TEST(Summarise, LeavesOneOfAHundredAboveP99) {
  std::vector<double> times(200);
  std::iota(times.begin(), times.end(), 1.0);
  EXPECT_EQ(summarise(times).p99, 198);
}

TEST(Summarise, HasAP99FromAHundredSamplesOn) {
  EXPECT_EQ(summarise(std::vector<double>(99, 1.0)).p99, std::nullopt);
  EXPECT_EQ(summarise(std::vector<double>(100, 1.0)).p99, 1.0);
}

TEST(Summarise, RefusesNothing) { EXPECT_THROW(summarise({}), UsageError); }

}  // namespace
}  // namespace kolo::bench
