#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "benchmarks/codec/mean_error.h"
#include "benchmarks/common/host_memory.h"
#include "benchmarks/common/samples.h"
#include "benchmarks/common/streaming_kernels.h"
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

constexpr int kRounds = 40;

TEST(PairedRounds, WhatSlowsBothDownCancelsOut) {
  RoundTimes slow, fast;
  for (int round = 0; round < kRounds; ++round) {
    const double drift = 1 + round;  // up to 40 times slower
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

// Eight contenders differ only by noise, so the luckiest is not better than the others.
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

/// Streams of `count` floats. Element i of stream s is s + 1 + i.
class Streams {
 public:
  Streams(std::size_t streams, std::size_t count) {
    for (std::size_t s = 0; s < streams; ++s) {
      memory_.emplace_back(count * sizeof(float));
      data_.push_back(reinterpret_cast<float*>(memory_.back().data()));
      for (std::size_t i = 0; i < count; ++i) data_[s][i] = static_cast<float>(s + 1 + i);
    }
  }
  const std::vector<float*>& data() const { return data_; }

 private:
  std::vector<HostMemory> memory_;
  std::vector<float*> data_;
};

void expect_sums(std::size_t streams, std::size_t count, Stores stores) {
  const Streams in(streams, count), out(streams, count);
  const std::vector<const float*> sources(in.data().begin(), in.data().end());
  streaming_sum(sources, out.data(), count, stores);
  streaming_sum(sources, in.data(), count, stores);  // in place
  for (std::size_t i = 0; i < count; ++i) {
    const auto sum = static_cast<float>(streams * i + streams * (streams + 1) / 2);
    for (std::size_t s = 0; s < streams; ++s) {
      ASSERT_EQ(out.data()[s][i], sum) << streams << " streams, element " << i;
      ASSERT_EQ(in.data()[s][i], sum) << streams << " streams in place, element " << i;
    }
  }
}

TEST(StreamingSum, WritesTheSumToEveryOutput) {
  for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
    for (std::size_t streams : std::initializer_list<std::size_t>{1, 2, 4, 7}) {
      for (std::size_t count : std::initializer_list<std::size_t>{0, 1, 63, 64, 65, 1000}) {
        expect_sums(streams, count, stores);
      }
    }
  }
}

std::map<std::string, ErrorStats> errors(DType wire, int ranks, std::uint64_t seed,
                                         float deviation = 0.25f) {
  std::map<std::string, ErrorStats> result;
  const MeanErrorOptions options{.count = 20000, .deviation = deviation, .seed = seed};
  for (const MeanErrorRow& row : measure_mean_errors(wire, ranks, options)) {
    result[row.method] = row.error;
  }
  return result;
}

// One rounding is half a unit. The rest is the error of the float32 sum.
TEST(MeanErrorTest, OfTheFlatMeanIsOneRounding) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    for (const int ranks : {2, 3, 6, 7, 12, 16, 32, 64}) {
      for (const float deviation : {0.25f, 1.0f}) {
        constexpr std::uint64_t kSeed = 1;
        const ErrorStats direct = errors(wire, ranks, kSeed, deviation)["direct"];
        EXPECT_LE(direct.most, 0.51) << to_string(wire) << ", " << ranks << " ranks, deviation "
                                     << deviation << ", seed " << kSeed;
        EXPECT_GT(direct.most, 0.4);
      }
    }
  }
}

// Some contributions are infinite, so some means are no numbers.
TEST(MeanErrorTest, IsNoNumberIfAMeanIsNone) {
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isnan(errors(DType::kFloat16, 2, 1, kMost)["direct"].most));
}

TEST(MeanErrorTest, OfARingGrowsWithRanks) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    auto few = errors(wire, 3, 1), many = errors(wire, 64, 1);
    EXPECT_GT(many["ring"].rms, 1.5 * few["ring"].rms);
    EXPECT_GT(many["ring"].rms, 3 * many["direct"].rms);
    EXPECT_LT(many["two-level"].rms, many["ring"].rms);
  }
}

// One third is not a 16-bit number. As a factor of the contributions, it biases every mean.
TEST(MeanErrorTest, OfPremultipliedContributionsIsABias) {
  auto three = errors(DType::kBFloat16, 3, 1);
  EXPECT_GT(three["ring-premultiplied"].rms, three["direct"].rms);
}

}  // namespace
}  // namespace kolo::bench
