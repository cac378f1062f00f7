#include "compression/chooser.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

using testing::HasSubstr;

constexpr double kFast = 1e12;

const ReducePath kDense = {};
const ReducePath kDense16 = {.method = &methods::fp16};
const ReducePath kAllGather = {&methods::topk, ExchangeRoute::kAllGather};
const ReducePath kOwnersPairwise = {&methods::topk, ExchangeRoute::kPairwise};

CompressionCosts wire_only(double latency_us, double bytes_per_us) {
  return {.link = {.latency_us = latency_us, .bytes_per_us = bytes_per_us},
          .selector_bytes_per_us = kFast,
          .pair_us = 0};
}

CompressedBucketShape bucket_of(std::size_t count, double density, int ranks) {
  return {.count = count,
          .pairs = static_cast<std::size_t>(density * static_cast<double>(count)),
          .ranks = ranks};
}

// Times in ms of a model of 25.6 million parameters at 10 Gbit/s, with 30 us and 1 us for each
// message. Dense takes the latency of halving and doubling here, 0.37 and 0.50 ms of these times.
TEST(ChooserTest, PredictsTheTableOfSparseAllReduces) {
  CompressionCosts costs = wire_only(30, 1250);
  costs.message_us = 1;
  struct Row {
    ReducePath path;
    int ranks;
    double density, ms;
  };
  for (const Row& row :
       {Row{kDense16, 64, 0.01, 81.0}, Row{kDense16, 256, 0.01, 82.1},
        Row{kAllGather, 64, 0.01, 77.6}, Row{kAllGather, 64, 0.001, 7.9},
        Row{kAllGather, 256, 0.01, 314}, Row{kAllGather, 256, 0.001, 31.6},
        Row{kOwnersPairwise, 64, 0.01, 3.01}, Row{kOwnersPairwise, 64, 0.001, 0.468},
        Row{kOwnersPairwise, 256, 0.01, 3.43}, Row{kOwnersPairwise, 256, 0.001, 0.856}}) {
    const double ms =
        predict_us(row.path, bucket_of(25'600'000, row.density, row.ranks), costs) / 1e3;
    EXPECT_NEAR(ms, row.ms, 0.02 * row.ms) << to_string(row.path) << ", " << row.ranks;
  }
}

// Every message has a cost: with all-gather and owners, each rank sends one to every other rank.
TEST(ChooserTest, MessagesAreThoseOfTheSchedules) {
  constexpr double kNoBytes = 1e18;
  for (const int ranks : {2, 5, 64}) {
    CompressionCosts costs = wire_only(100, kNoBytes);
    costs.message_us = 1;
    const auto us = [&](const ReducePath& path) {
      return predict_us(path, bucket_of(1'000'000, 0.01, ranks), costs);
    };
    const double others = ranks - 1;
    const double rounds = std::ceil(std::log2(ranks));
    EXPECT_NEAR(us(kAllGather), 100 + others, 0.01);
    EXPECT_NEAR(us(kOwnersPairwise), 2 * (100 + others), 0.01);
    EXPECT_NEAR(us(kDense), 2 * rounds * 101, 0.01);
  }
}

// By bytes alone, all-gather beats dense 16-bit below density 4 / 6P, and owners do below 4 / 14.
TEST(ChooserTest, BreaksEvenAtTheDensitiesOfTheFormulas) {
  const CompressionCosts costs = wire_only(0, 1000);
  for (const int ranks : {2, 8, 64, 256}) {
    const auto beats_dense = [&](const ReducePath& path, double density) {
      const CompressedBucketShape bucket = bucket_of(100'000'000, density, ranks);
      return predict_us(path, bucket, costs) < predict_us(kDense16, bucket, costs);
    };
    const double all_gather = 4.0 / (6 * ranks);
    EXPECT_TRUE(beats_dense(kAllGather, 0.999 * all_gather)) << ranks;
    EXPECT_FALSE(beats_dense(kAllGather, 1.001 * all_gather)) << ranks;
    const double owners = 4.0 / 14;
    EXPECT_TRUE(beats_dense(kOwnersPairwise, 0.999 * owners)) << ranks;
    EXPECT_FALSE(beats_dense(kOwnersPairwise, 1.001 * owners)) << ranks;
  }
}

// Selection moves 12 bytes per element, so it does not pay on a fast link.
TEST(ChooserTest, SelectionBandwidthBoundsTheLinksThatGain) {
  const double selector = 10'000;
  const CompressedBucketShape bucket = bucket_of(10'000'000, 0.01, 8);
  // On P ranks, all bytes are multiplied by (P-1)/P: dense 8, owners 14 * density.
  const double bound = (8 - 14 * 0.01) * 7 / 8 * selector / 12;
  for (const double side : {0.99, 1.01}) {
    CompressionCosts costs = wire_only(0, side * bound);
    costs.selector_bytes_per_us = selector;
    EXPECT_EQ(predict_us(kOwnersPairwise, bucket, costs) < predict_us(kDense, bucket, costs),
              side < 1);
  }
}

// 16 bits take the time of the link or of the cores, whichever is longer: 10 million elements
// between two ranks are 20 MB on the link and 120 MB in memory.
TEST(ChooserTest, CastsGoOnWhileBytesAreOnTheirWay) {
  const CompressedBucketShape bucket = bucket_of(10'000'000, 0.01, 2);
  for (const double link : {1000.0, 10'000.0}) {
    CompressionCosts costs = wire_only(0, link);
    costs.selector_bytes_per_us = 12'000;
    EXPECT_DOUBLE_EQ(predict_us(kDense16, bucket, costs), std::max(20e6 / link, 120e6 / 12'000));
  }
}

TEST(ChooserTest, SharedCoresSlowWhatIsComputedAndNotWhatIsSent) {
  const CompressedBucketShape bucket = bucket_of(1'000'000, 0.01, 4);
  CompressionCosts costs = wire_only(10, 1000);
  costs.selector_bytes_per_us = std::numeric_limits<double>::infinity();
  CompressionCosts alone = costs;
  alone.selector_bytes_per_us = 10'000;
  alone.pair_us = 0.05;
  CompressionCosts shared = alone;
  shared.cores = 0.5;
  for (const ReducePath& path : {kDense, kDense16, kAllGather, kOwnersPairwise}) {
    SCOPED_TRACE(to_string(path));
    const double wire_us = predict_us(path, bucket, costs);
    const double extra_us = predict_us(path, bucket, alone) - wire_us;
    EXPECT_NEAR(predict_us(path, bucket, shared) - wire_us, 2 * extra_us, 1e-6);
  }
  EXPECT_EQ(work_us(kDense, bucket, alone), 0);
  EXPECT_NEAR(work_us(kOwnersPairwise, bucket, alone), 1200 + 500, 1e-6);
}

TEST(ChooserTest, LeavesDenseOnlyForAGainOfAFifth) {
  // Dense 16-bit takes half the time of dense. This density makes the gain exactly kLeastGain.
  const double density = 4.0 / 14 / kLeastGain;
  const CompressionCosts costs = wire_only(0, 1000);
  const CompressionChoice stays = choose_path(bucket_of(100'000'000, 1.001 * density, 8), costs);
  EXPECT_EQ(stays.path, kDense16);
  EXPECT_THAT(stays.reason, HasSubstr("dense 16-bit 0.35 s predicted; top-k through owners "));
  EXPECT_THAT(stays.reason, HasSubstr("less than 1.2"));
  const CompressionChoice leaves = choose_path(bucket_of(100'000'000, 0.999 * density, 8), costs);
  EXPECT_EQ(leaves.path, kOwnersPairwise);
  EXPECT_THAT(leaves.reason, HasSubstr("1.2 times as fast as dense 16-bit"));
}

// Values are sent as codes; sums come back as codes or in 16 bits, through owners. `auto` does not
// choose these methods.
TEST(ChooserTest, QuantisedMethodsArePricedByTheirCodes) {
  const CompressionCosts costs = wire_only(0, 1000);
  const double count = 256'000;
  CompressedBucketShape bucket = bucket_of(256'000, 0.01, 4);
  const auto us = [&](const CompressionMethod& method) {
    const PathPrediction best = fastest_path(method, bucket, costs);
    EXPECT_EQ(best.path.route, ExchangeRoute::kPairwise) << method.name;
    return best.us;
  };
  EXPECT_NEAR(us(methods::int8), 0.75 * count * 2 * 257 / 256 / 1000, 0.01);
  EXPECT_NEAR(us(methods::two_bit), 0.75 * count * (0.25 + 0.25) / 1000, 0.01);
  bucket.sum_bytes = 2;
  EXPECT_NEAR(us(methods::two_bit), 0.75 * count * (0.25 + 2) / 1000, 0.01);
  EXPECT_EQ(choose_path(bucket, costs).path.method, &methods::topk);
}

// Both factors go to owners and back, one after the other.
TEST(ChooserTest, FactorsArePricedByTheirNumbersAndTwoExchanges) {
  CompressionCosts costs = wire_only(50, 1000);
  costs.selector_bytes_per_us = 10'000;
  CompressedBucketShape bucket = bucket_of(1'000'000, 0.01, 4);
  bucket.factors = 8000;
  bucket.matrix_rank = 2;
  const PathPrediction best = fastest_path(methods::power_sgd, bucket, costs);
  EXPECT_EQ(best.path, (ReducePath{&methods::power_sgd, ExchangeRoute::kPairwise}));
  EXPECT_NEAR(best.us, 0.75 * 2 * 4 * 8000 / 1000 + 4 * 50 + 22e6 / 10'000, 0.01);
}

TEST(ChooserTest, OneRankHasNothingToSend) {
  EXPECT_EQ(choose_path(bucket_of(1'000'000, 0.01, 1), {}).path, kDense);
  EXPECT_THROW(predict_us(kDense, {.ranks = 0}, {}), UsageError);
}

// --- Whole steps --------------------------------------------------------------------------------

/// 4 million elements between 4 ranks at 12 MB/s: dense takes 2 s, and top-k of 1 % about 35 ms.
BucketExchange slow_exchange(double cores = 1) {
  CompressionCosts costs{.link = {.latency_us = 100, .bytes_per_us = 12}};
  costs.cores = cores;
  return {.shape = bucket_of(4'000'000, 0.01, 4), .costs = costs};
}

double exchange_us(const ReducePath& path, const BucketExchange& exchange) {
  return predict_us(path, exchange.shape, exchange.costs);
}

ReducePath chosen_for(const BucketExchange& exchange, double compute_us, double exposed_us) {
  const StepChoice choice = choose_step(
      std::vector{exchange}, {.step_us = compute_us + exposed_us, .exposed_us = exposed_us});
  EXPECT_EQ(choice.paths.size(), 1u);
  return choice.paths.front();
}

// Steps must become 1.2 times faster. The same exchange stops paying when computation grows to the
// value of the formula: first top-k compared with 16 bits, then 16 bits.
TEST(ChooseStep, PaysIfStepsBecomeAFifthFaster) {
  const BucketExchange exchange = slow_exchange();
  const double dense = exchange_us(kDense, exchange);
  const double dense16 = exchange_us(kDense16, exchange);
  const double sparse = exchange_us(kOwnersPairwise, exchange);
  // compute + dense16 = 1.2 (compute + sparse), and compute + dense = 1.2 (compute + dense16).
  const double until_sparse = (dense16 - kLeastGain * sparse) / (kLeastGain - 1);
  const double until_16 = (dense - kLeastGain * dense16) / (kLeastGain - 1);
  ASSERT_LT(until_16, until_sparse);
  EXPECT_EQ(chosen_for(exchange, 0.99 * until_16, dense), kOwnersPairwise);
  // From here on top-k competes with dense.
  const double until_none = (dense - kLeastGain * sparse) / (kLeastGain - 1);
  EXPECT_EQ(chosen_for(exchange, 0.99 * until_none, dense), kOwnersPairwise);
  EXPECT_EQ(chosen_for(exchange, 1.01 * until_none, dense), kDense);
}

// 16 bits pay compared with dense, but top-k does not pay compared with 16 bits.
TEST(ChooseStep, TopKHasToBeatSixteenBits) {
  BucketExchange exchange = slow_exchange();
  exchange.shape.pairs = exchange.shape.count / 5;
  const double dense = exchange_us(kDense, exchange);
  EXPECT_EQ(choose_path(exchange.shape, exchange.costs).path, kOwnersPairwise);
  EXPECT_EQ(chosen_for(exchange, dense / 2, dense), kDense16);
  EXPECT_EQ(chosen_for(exchange, 0, dense), kOwnersPairwise);
}

TEST(ChooseStep, WhatIsHiddenIsWorthNothing) {
  const BucketExchange exchange = slow_exchange();
  const double dense = exchange_us(kDense, exchange);
  const std::vector buckets{exchange};
  const StepChoice hidden = choose_step(buckets, {.step_us = 2 * dense, .exposed_us = 0});
  EXPECT_EQ(hidden.paths.front(), kDense);
  EXPECT_EQ(hidden.step_us, 2 * dense);
  EXPECT_THAT(hidden.reason, HasSubstr("0.0 us of it waiting"));
  // The exposed time is the most that can be saved, for any link.
  EXPECT_EQ(chosen_for(exchange, 2 * dense, 0.1 * dense), kDense);
  EXPECT_NE(chosen_for(exchange, 2 * dense, 0.9 * dense), kDense);
}

TEST(ChooseStep, SaysWhatWasMeasuredAndPredicted) {
  const BucketExchange exchange = slow_exchange();
  const double dense = exchange_us(kDense, exchange);
  const StepChoice choice =
      choose_step(std::vector{exchange}, {.step_us = 1.5 * dense, .exposed_us = dense});
  EXPECT_EQ(choice.paths.front(), kOwnersPairwise);
  EXPECT_NEAR(choice.step_us, 0.5 * dense + exchange_us(kOwnersPairwise, exchange), 1e-6 * dense);
  EXPECT_THAT(choice.reason, HasSubstr("dense steps took 3.00 s, 2.00 s of it waiting"));
  EXPECT_THAT(choice.reason, HasSubstr("with dense 16-bit"));
  EXPECT_THAT(choice.reason, HasSubstr("with top-k, where 1.2 times"));
}

// Selection on cores that computation needs is not hidden, if steps are short.
TEST(ChooseStep, NothingHidesWorkOnSharedCores) {
  for (const double cores : {1.0, 0.5}) {
    BucketExchange exchange = slow_exchange(cores);
    exchange.costs.selector_bytes_per_us = 48'000'000 / (cores < 1 ? 200'000.0 : 400'000.0);
    const BucketExchange small{.shape = bucket_of(1000, 0.01, 4), .costs = exchange.costs};
    const double dense = exchange_us(kDense, exchange);
    const double small_dense = exchange_us(kDense, small);
    // There are 0.4 s of selection and 1.5 s of computation, which hides all but 0.5 s of dense.
    const double exposed = 0.5e6;
    const StepChoice choice =
        choose_step(std::vector{exchange, small}, {.step_us = 2e6, .exposed_us = exposed});
    const double overlap = dense + small_dense - exposed;
    ASSERT_GT(overlap, 0.5e6);
    EXPECT_EQ(choice.paths.front() == kDense, cores < 1) << choice.reason;
  }
}

// A bucket begins when all of it is ready, so no computation hides the last bucket.
TEST(ChooseStep, TheLastGroupShows) {
  const BucketExchange large = slow_exchange();
  const BucketExchange small{.shape = bucket_of(100'000, 0.01, 4), .costs = large.costs};
  const double dense = exchange_us(kDense, large) + exchange_us(kDense, small);
  const DenseSteps measured{.step_us = dense, .exposed_us = 0.8 * dense};
  const StepChoice small_last = choose_step(std::vector{large, small}, measured);
  const StepChoice large_last = choose_step(std::vector{small, large}, measured);
  EXPECT_NEAR(small_last.step_us, 0.2 * dense + exchange_us(kOwnersPairwise, small), 1e-6 * dense);
  EXPECT_NEAR(large_last.step_us, 0.2 * dense + exchange_us(kOwnersPairwise, large), 1e-6 * dense);
}

TEST(ChooseStep, WhatDoesNotPayByItselfStaysDense) {
  const BucketExchange slow = slow_exchange();
  BucketExchange fast = slow;
  fast.costs.link = {.latency_us = 1, .bytes_per_us = 100'000};
  const double dense = exchange_us(kDense, slow) + exchange_us(kDense, fast);
  const StepChoice choice =
      choose_step(std::vector{fast, slow}, {.step_us = 1.2 * dense, .exposed_us = dense});
  EXPECT_EQ(choice.paths[0], kDense);
  EXPECT_EQ(choice.paths[1], kOwnersPairwise);
  EXPECT_THROW(choose_step({}, {}), UsageError);
}

}  // namespace
}  // namespace kolo
