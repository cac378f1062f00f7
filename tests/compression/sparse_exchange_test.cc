#include "compression/sparse_exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "comm/collective/reduce_kernels.h"
#include "compression/density_schedule.h"
#include "tests/compression/simulated_exchange.h"

namespace kolo {
namespace {

using test::Gradients;
using test::Route;
using test::SimulatedExchange;
using testing::ElementsAre;

constexpr std::uint32_t kSeed = 71;
constexpr Route kRoutes[] = {Route::kPairwise, Route::kLogStep, Route::kAllGather};
constexpr QuotaRule kRules[] = {QuotaRule::kQuota, QuotaRule::kGlobalExact, QuotaRule::kLossless};
constexpr DType kWires[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

template <typename T, std::size_t N>
T any_of(std::mt19937& random, const T (&choices)[N]) {
  return choices[random() % N];
}

struct Shape {
  SparsePlan plan;
  std::vector<std::size_t> ks;  ///< Per tensor.

  std::string text() const {
    std::string text = std::to_string(plan.ranks) + " ranks, rule " +
                       std::to_string(static_cast<int>(plan.rule)) + ", wire " +
                       std::string(to_string(plan.wire)) + " and " +
                       std::string(to_string(plan.result_wire)) + ", tensors";
    for (std::size_t t = 0; t < ks.size(); ++t) {
      text += " " + std::to_string(ks[t]) + "/" + std::to_string(plan.tensor_counts[t]);
    }
    return text;
  }
};

Shape shape_of(int ranks, std::vector<std::size_t> counts, double density) {
  Shape shape{.plan = {.tensor_counts = std::move(counts), .ranks = ranks}, .ks = {}};
  for (const std::size_t count : shape.plan.tensor_counts) {
    shape.ks.push_back(pairs_to_keep(density, count));
    shape.plan.k += shape.ks.back();
  }
  return shape;
}

Shape random_shape(std::mt19937& random) {
  std::vector<std::size_t> counts(1 + random() % 4);
  for (std::size_t& count : counts) count = random() % 10 == 0 ? random() % 3 : random() % 3000;
  const int ranks = 1 + static_cast<int>(random() % 16);
  Shape shape = shape_of(ranks, counts, any_of(random, {0.01, 0.1, 0.5, 1.0}));
  shape.plan.rule = any_of(random, kRules);
  shape.plan.wire = any_of(random, kWires);
  shape.plan.result_wire = any_of(random, kWires);
  return shape;
}

// Small integers times 2^-6: all sums of all steps are exact.
float lattice(std::mt19937& random) {
  return static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-6f;
}
float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }

std::vector<Gradients> gradients_of(std::mt19937& random, const SparsePlan& plan,
                                    float (*number)(std::mt19937&)) {
  std::vector<Gradients> gradients(static_cast<std::size_t>(plan.ranks));
  for (Gradients& own : gradients) {
    for (const std::size_t count : plan.tensor_counts) {
      own.emplace_back(count);
      for (float& value : own.back()) value = number(random);
    }
  }
  return gradients;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<std::uint32_t> residual_bits(SimulatedExchange& exchange) {
  std::vector<float> all;
  for (int rank = 0; rank < exchange.plan().ranks; ++rank) {
    for (std::size_t t = 0; t < exchange.plan().tensor_counts.size(); ++t) {
      const auto residual = exchange.feedback(rank).residual(t);
      all.insert(all.end(), residual.begin(), residual.end());
    }
  }
  return bits_of(all);
}

// Residuals of all ranks, summed per element of the group; exact for lattice numbers.
std::vector<double> residual_sums(SimulatedExchange& exchange) {
  std::vector<double> sums(exchange.plan().count());
  for (int rank = 0; rank < exchange.plan().ranks; ++rank) {
    std::size_t element = 0;
    for (std::size_t t = 0; t < exchange.plan().tensor_counts.size(); ++t) {
      for (const float value : exchange.feedback(rank).residual(t)) sums[element++] += value;
    }
  }
  return sums;
}

std::vector<double> gradient_sums(const std::vector<Gradients>& gradients) {
  std::vector<double> sums;
  for (const Gradients& own : gradients) {
    std::size_t element = 0;
    for (const auto& tensor : own) {
      sums.resize(std::max(sums.size(), element + tensor.size()));
      for (const float value : tensor) sums[element++] += value;
    }
  }
  return sums;
}

class SparseExchangeTest : public testing::Test {
 protected:
  std::mt19937 random_{kSeed};
};

// I2 and I6: the same result on all ranks, and the same bits, of results and residuals, whichever
// way the pairs take.
TEST_F(SparseExchangeTest, AllRoutesGiveAllRanksTheSameBits) {
  for (int round = 0; round < 80; ++round) {
    const Shape shape = random_shape(random_);
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(kSeed) + ": " +
                 shape.text());
    std::vector<SimulatedExchange> exchanges;
    for (std::size_t i = 0; i < std::size(kRoutes); ++i) exchanges.emplace_back(shape.plan);
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of(random_, shape.plan, normal);
      for (std::size_t i = 0; i < std::size(kRoutes); ++i) {
        ASSERT_TRUE(exchanges[i].step(gradients, shape.ks, kRoutes[i], 0.1f));
        for (const auto& output : exchanges[i].outputs()) {
          ASSERT_EQ(bits_of(output), bits_of(exchanges[0].outputs()[0]));
        }
        ASSERT_EQ(residual_bits(exchanges[i]), residual_bits(exchanges[0]));
      }
    }
  }
}

// I3 and I4: nothing is lost and nothing appears, in each step and over all of them.
TEST_F(SparseExchangeTest, MassIsConservedExactly) {
  for (int round = 0; round < 60; ++round) {
    const Shape shape = random_shape(random_);
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(kSeed) + ": " +
                 shape.text());
    SimulatedExchange exchange(shape.plan);
    std::vector<double> put_in(shape.plan.count()), came_out(shape.plan.count());
    for (int step = 0; step < 6; ++step) {
      const auto gradients = gradients_of(random_, shape.plan, lattice);
      exchange.step(gradients, shape.ks, kRoutes[random_() % 3], 1.0f);
      const std::vector<double> sums = gradient_sums(gradients);
      const std::vector<double> left = residual_sums(exchange);
      for (std::size_t i = 0; i < put_in.size(); ++i) {
        put_in[i] += sums[i];
        came_out[i] += exchange.outputs()[0][i];
        ASSERT_EQ(came_out[i] + left[i], put_in[i]) << "step " << step << ", element " << i;
      }
    }
  }
}

// I5: at density one, with float32 on the wire, the dense all-reduce with its order and rounding.
TEST_F(SparseExchangeTest, DensityOneEqualsTheDensePath) {
  for (const int ranks : {1, 2, 3, 5, 8, 16}) {
    for (const QuotaRule rule : kRules) {
      Shape shape = shape_of(ranks, {1000, 1, 777}, 1.0);
      shape.plan.rule = rule;
      shape.plan.wire = DType::kFloat32;
      SCOPED_TRACE(shape.text() + ", seed " + std::to_string(kSeed));
      const auto gradients = gradients_of(random_, shape.plan, normal);
      const auto scale = static_cast<float>(1.0 / ranks);
      SimulatedExchange exchange(shape.plan);
      exchange.step(gradients, shape.ks, Route::kPairwise, scale);
      std::size_t begin = 0;
      for (std::size_t t = 0; t < shape.ks.size(); ++t) {
        std::vector<const void*> sources;
        for (const Gradients& own : gradients) sources.push_back(own[t].data());
        std::vector<float> dense(gradients[0][t].size());
        reduce(DType::kFloat32, ReduceOp::kSum, dense.data(), sources, dense.size(), 1.0 / ranks);
        const auto first = exchange.outputs()[0].begin() + static_cast<std::ptrdiff_t>(begin);
        const std::vector<float> sparse(first, first + static_cast<std::ptrdiff_t>(dense.size()));
        ASSERT_EQ(bits_of(sparse), bits_of(dense));
        begin += dense.size();
      }
      for (const double left : residual_sums(exchange)) ASSERT_EQ(left, 0.0);
    }
  }
}

TEST_F(SparseExchangeTest, LosslessEqualsTheDenseSumOfWhatIsSent) {
  for (int round = 0; round < 20; ++round) {
    Shape shape = random_shape(random_);
    shape.plan.rule = QuotaRule::kLossless;
    shape.plan.result_wire = DType::kFloat32;
    SimulatedExchange exchange(shape.plan);
    exchange.step(gradients_of(random_, shape.plan, normal), shape.ks, Route::kLogStep, 1.0f);
    std::vector<float> dense(shape.plan.count());
    for (const Contribution& contribution : exchange.contributions()) {
      Share share;
      whole(shape.plan, contribution, share);
      for (std::size_t j = 0; j < share.pairs.size(); ++j) {
        dense[share.pairs.indices[j]] += share.pairs.values[j];
      }
    }
    ASSERT_EQ(exchange.outputs()[0], dense) << shape.text() << ", seed " << kSeed;
  }
}

TEST_F(SparseExchangeTest, GlobalExactKeepsTheLargestSumsOfAll) {
  for (int round = 0; round < 30; ++round) {
    Shape shape = random_shape(random_);
    shape.plan.result_wire = DType::kFloat32;
    const auto gradients = gradients_of(random_, shape.plan, round % 2 == 0 ? normal : lattice);
    shape.plan.rule = QuotaRule::kLossless;
    SimulatedExchange lossless(shape.plan);
    lossless.step(gradients, shape.ks, Route::kPairwise, 1.0f);
    shape.plan.rule = QuotaRule::kGlobalExact;
    SimulatedExchange exact(shape.plan);
    exact.step(gradients, shape.ks, Route::kPairwise, 1.0f);
    const auto magnitudes_of = [](std::vector<float> values) {
      for (float& value : values) value = std::fabs(value);
      std::ranges::sort(values, std::greater<>());
      return values;
    };
    std::vector<float> expected = magnitudes_of(lossless.outputs()[0]);
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(shape.plan.k), expected.end(), 0.0f);
    ASSERT_EQ(magnitudes_of(exact.outputs()[0]), expected)
        << shape.text() << ", seed " << kSeed << ", round " << round;
  }
}

TEST(GlobalThresholdTest, TiesGoToTheFirstOwners) {
  GlobalThreshold threshold(4);
  std::vector<Pairs> sums = {{.indices = {0, 1}, .values = {2, -1}},
                             {.indices = {0, 5, 9}, .values = {1, 3, 1}},
                             {.indices = {7}, .values = {-1}}};
  while (!threshold.found()) {
    std::vector<std::uint32_t> total(threshold.bins()), counts(threshold.bins());
    for (const Pairs& own : sums) {
      threshold.count(own, counts);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += counts[i];
    }
    threshold.narrow(total);
  }
  std::size_t before = 0;
  for (Pairs& own : sums) {
    const std::size_t equals = threshold.equals(own);
    threshold.keep(own, before);
    before += equals;
  }
  EXPECT_THAT(sums[0].indices, ElementsAre(0, 1));
  EXPECT_THAT(sums[1].indices, ElementsAre(0, 5));
  EXPECT_THAT(sums[2].indices, ElementsAre());
}

// I8, for the whole residual of one rank and float32 values.
TEST_F(SparseExchangeTest, WhatIsLeftIsAContraction) {
  for (int round = 0; round < 20; ++round) {
    const std::size_t count = 1 + random_() % 5000;
    Shape shape = shape_of(1, {count}, 0.001 + 0.5 * (round % 2));
    shape.plan.wire = DType::kFloat32;
    shape.plan.rule = QuotaRule::kLossless;
    SimulatedExchange exchange(shape.plan);
    const auto gradients = gradients_of(random_, shape.plan, normal);
    exchange.step(gradients, shape.ks, Route::kPairwise, 1.0f);
    double before = 0;
    for (const float value : gradients[0][0]) before += double{value} * double{value};
    const double after = std::pow(exchange.feedback(0).residual_norm(0), 2);
    const double share = static_cast<double>(shape.ks[0]) / static_cast<double>(count);
    // The squares are summed in float64: count roundings of a relative 2^-53 each.
    EXPECT_LE(after, (1 - share) * before + before * static_cast<double>(count) * 0x1p-52)
        << "seed " << kSeed;
  }
}

// I9: a tensor's pairs, exponent and values do not depend on the tensors around it.
TEST_F(SparseExchangeTest, TensorsArePreparedAlikeInAnyGroup) {
  for (const DType wire : kWires) {
    std::vector<Pairs> tensors(3);
    for (Pairs& pairs : tensors) {
      const float magnitude = std::ldexp(1.0f, static_cast<int>(random_() % 60) - 30);
      for (std::uint32_t i = 0; i < 50; ++i) pairs.add(i, magnitude * normal(random_));
    }
    const SparsePlan together{.tensor_counts = {50, 50, 50}, .ranks = 2, .k = 150, .wire = wire};
    const SparsePlan alone{.tensor_counts = {50}, .ranks = 2, .k = 50, .wire = wire};
    Contribution all{.tensors = tensors};
    prepare(together, all);
    for (std::size_t t = 0; t < 3; ++t) {
      Contribution own{.tensors = {tensors[t]}};
      prepare(alone, own);
      EXPECT_EQ(own.tensors[0], all.tensors[t]) << "seed " << kSeed;
      EXPECT_EQ(own.exponents[0], all.exponents[t]);
    }
  }
}

// I10: one bad number anywhere, and no residual of any rank has changed.
TEST_F(SparseExchangeTest, ABadNumberOnOneRankSkipsTheStepOnAll) {
  for (int round = 0; round < 20; ++round) {
    const Shape shape = random_shape(random_);
    if (shape.plan.count() == 0) continue;
    SimulatedExchange exchange(shape.plan);
    auto gradients = gradients_of(random_, shape.plan, normal);
    ASSERT_TRUE(exchange.step(gradients, shape.ks, Route::kPairwise, 1.0f));
    const auto before = residual_bits(exchange);
    Gradients& own = gradients[random_() % gradients.size()];
    const auto hit = std::ranges::find_if(own, [](const auto& tensor) { return !tensor.empty(); });
    (*hit)[random_() % hit->size()] = round % 2 == 0 ? std::numeric_limits<float>::infinity()
                                                     : std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(exchange.step(gradients, shape.ks, kRoutes[round % 3], 1.0f));
    ASSERT_EQ(residual_bits(exchange), before) << shape.text() << ", seed " << kSeed;
  }
}

// I11.
TEST_F(SparseExchangeTest, Edges) {
  const auto zero = [](std::mt19937&) { return 0.0f; };
  const auto minus_zero = [](std::mt19937&) { return -0.0f; };
  const auto equal = [](std::mt19937&) { return -2.5f; };
  const auto denormal = [](std::mt19937& random) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807fffffu);
  };
  for (float (*const number)(std::mt19937&) : {+zero, +minus_zero, +equal, +denormal}) {
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{}, {0}, {1}, {3, 2}, {64 * 5 + 1, 0, 63}}) {
      for (const QuotaRule rule : kRules) {
        for (const DType wire : kWires) {
          Shape shape = shape_of(5, counts, 0.1);
          shape.plan.rule = rule;
          shape.plan.wire = wire;
          SCOPED_TRACE(shape.text());
          SimulatedExchange direct(shape.plan), gathered(shape.plan);
          for (int step = 0; step < 2; ++step) {
            const auto gradients = gradients_of(random_, shape.plan, number);
            ASSERT_TRUE(direct.step(gradients, shape.ks, Route::kLogStep, 1.0f));
            ASSERT_TRUE(gathered.step(gradients, shape.ks, Route::kAllGather, 1.0f));
            for (const auto& output : gathered.outputs()) {
              ASSERT_EQ(bits_of(output), bits_of(direct.outputs()[0]));
            }
            ASSERT_EQ(residual_bits(direct), residual_bits(gathered));
          }
        }
      }
    }
  }
}

TEST_F(SparseExchangeTest, NothingToSendIsAStepToo) {
  Shape shape = shape_of(3, {100, 20}, 0.1);
  shape.plan.k = 0;
  SimulatedExchange exchange(shape.plan);
  const auto gradients = gradients_of(random_, shape.plan, lattice);
  ASSERT_TRUE(exchange.step(gradients, {0, 0}, Route::kPairwise, 1.0f));
  for (const float value : exchange.outputs()[2]) EXPECT_EQ(value, 0.0f);
  EXPECT_EQ(residual_sums(exchange), gradient_sums(gradients));
}

// I13: what is sent is what the formula says, with its parts written out here.
TEST_F(SparseExchangeTest, WireBytesEqualTheFormula) {
  for (const int ranks : {2, 3, 4, 7, 8, 16, 64, 256}) {
    Shape shape = shape_of(ranks, {30000, 37, 40000}, 0.01);
    SCOPED_TRACE(shape.text() + ", seed " + std::to_string(kSeed));
    SimulatedExchange exchange(shape.plan);
    const auto gradients = gradients_of(random_, shape.plan, normal);
    exchange.step(gradients, shape.ks, Route::kPairwise, 1.0f);
    const auto others = static_cast<std::size_t>(ranks - 1);
    const auto index_bytes_of = [](const PayloadPlan& plan, std::size_t pairs) {
      // One page, as each owner has fewer than 64 Ki elements.
      return plan.coding == IndexCoding::kU32 ? 4 * pairs : 4 + 2 * pairs;
    };
    const std::size_t quota = quota_of(shape.plan, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const test::WireAccount& account = exchange.accounts()[static_cast<std::size_t>(rank)];
      std::size_t expected = 0, pairs = 0;
      Shares shares;
      split(shape.plan, exchange.contributions()[static_cast<std::size_t>(rank)], shares);
      for (int owner = 0; owner < ranks; ++owner) {
        if (owner == rank) continue;
        const std::size_t own = shares.pairs_of(owner).size();
        expected += 16 + 3 * 8 + (2 * own + 3) / 4 * 4 + index_bytes_of(shape.plan.share(), own);
        pairs += own;
      }
      EXPECT_EQ(account.split_bytes, expected);
      EXPECT_EQ(account.split_messages, others);
      EXPECT_LE(pairs, shape.plan.k);
      EXPECT_LE(account.gather_bytes,
                others * (16 + 8 + 4 * quota + index_bytes_of(shape.plan.result(), quota)));
      // Whatever the number of ranks: 6 bytes a pair to the owners, 8 back, and the headers.
      EXPECT_LE(account.split_bytes + account.gather_bytes,
                14 * (shape.plan.k + others) + others * (16 + 24 + 2 + 4 + 16 + 8 + 4));
    }
    exchange.step(gradients, shape.ks, Route::kLogStep, 1.0f);
    for (const test::WireAccount& account : exchange.accounts()) {
      EXPECT_EQ(account.split_messages, static_cast<std::size_t>(log_step_rounds(ranks)));
    }
    exchange.step(gradients, shape.ks, Route::kAllGather, 1.0f);
    for (const test::WireAccount& account : exchange.accounts()) {
      EXPECT_EQ(account.split_bytes, 0u);
      EXPECT_EQ(account.gather_bytes, others * shape.plan.contribution().bytes(shape.plan.k));
    }
  }
}

TEST_F(SparseExchangeTest, ManyRanksAgreeAndConserveMass) {
  for (const int ranks : {64, 100, 256}) {
    Shape shape = shape_of(ranks, {9000, 500}, 0.01);
    SimulatedExchange exchange(shape.plan);
    const auto gradients = gradients_of(random_, shape.plan, lattice);
    exchange.step(gradients, shape.ks, Route::kLogStep, 1.0f);
    const std::vector<double> left = residual_sums(exchange);
    const std::vector<double> sums = gradient_sums(gradients);
    for (std::size_t i = 0; i < left.size(); ++i) {
      ASSERT_EQ(exchange.outputs()[0][i] + left[i], sums[i]) << ranks << " ranks";
    }
    for (const auto& output : exchange.outputs()) ASSERT_EQ(output, exchange.outputs()[0]);
  }
}

// Layers with very different gradients: the quota loses little against the exact choice, and no
// owner is overloaded, since blocks go round.
TEST_F(SparseExchangeTest, QuotaKeepsNearlyTheEnergyOfTheExactChoice) {
  Shape shape = shape_of(16, {40000, 40000, 40000, 40000}, 0.01);
  auto gradients = gradients_of(random_, shape.plan, normal);
  for (Gradients& own : gradients) {
    for (std::size_t t = 0; t < 4; ++t) {
      for (float& value : own[t]) value = std::ldexp(value, 3 * static_cast<int>(t));
    }
  }
  // All of one group: the exact choice falls nearly all on the last tensor.
  const auto energy_of = [&](QuotaRule rule) {
    shape.plan.rule = rule;
    SimulatedExchange exchange(shape.plan);
    exchange.step(gradients, shape.ks, Route::kPairwise, 1.0f);
    double energy = 0;
    for (const float value : exchange.outputs()[0]) energy += double{value} * double{value};
    return energy;
  };
  EXPECT_GE(energy_of(QuotaRule::kQuota), 0.97 * energy_of(QuotaRule::kGlobalExact))
      << "seed " << kSeed;
}

TEST(BlockOwnershipTest, EveryElementHasOneOwnerAndOneNumber) {
  for (const int owners : {1, 2, 3, 16, 256}) {
    for (const std::size_t count :
         std::initializer_list<std::size_t>{0, 1, 63, 64, 65, 5000, 70001}) {
      const BlockOwnership ownership(count, owners);
      std::vector<std::uint32_t> next(static_cast<std::size_t>(owners));
      for (std::size_t i = 0; i < count; ++i) {
        const int owner = ownership.owner(i);
        ASSERT_EQ(ownership.local(i), next[static_cast<std::size_t>(owner)]++);
        ASSERT_EQ(ownership.element(owner, ownership.local(i)), i);
      }
      for (int owner = 0; owner < owners; ++owner) {
        EXPECT_EQ(ownership.local_count(owner), next[static_cast<std::size_t>(owner)]);
        EXPECT_LE(ownership.local_count(owner), ownership.most_local());
      }
    }
  }
}

TEST(BlockOwnershipTest, NumbersStayExactBeyond32Bits) {
  const std::size_t count = (std::size_t{1} << 33) + 5;
  const BlockOwnership ownership(count, 8);
  EXPECT_EQ(ownership.block(), 4096u);
  for (const std::size_t i : {std::size_t{0}, (std::size_t{1} << 24) + 1,
                              (std::size_t{1} << 32) - 1, (std::size_t{1} << 32) + 77, count - 1}) {
    EXPECT_EQ(ownership.element(ownership.owner(i), ownership.local(i)), i);
  }
  EXPECT_THROW(BlockOwnership(std::size_t{1} << 34, 1), UsageError);
  EXPECT_THROW(BlockOwnership(5, 0), UsageError);
}

TEST(ExchangeRoutesTest, PairwiseDestinationsAreEveryOtherRankOnce) {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    for (int step = 0; step + 1 < ranks; ++step) {
      std::set<int> reached;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_NE(pairwise_destination(ranks, rank, step), rank);
        reached.insert(pairwise_destination(ranks, rank, step));
      }
      EXPECT_EQ(reached.size(), static_cast<std::size_t>(ranks));
    }
  }
  EXPECT_THAT(log_step_forwards(4, 1, 1), ElementsAre(Forward{1, 3}, Forward{0, 3}));
  EXPECT_EQ(log_step_rounds(1), 0);
  EXPECT_EQ(log_step_rounds(5), 3);
  EXPECT_EQ(log_step_rounds(256), 8);
}

TEST(OwnerSumTest, AddsInOrderAndStartsAnew) {
  OwnerSum sum(130);
  sum.add({.indices = {0, 129}, .values = {-0.0f, 1e8f}});
  sum.add({.indices = {64, 129}, .values = {2, 1}});
  sum.add({.indices = {129}, .values = {-1e8f}});
  Pairs sums;
  sum.take(sums);
  EXPECT_THAT(sums.indices, ElementsAre(0, 64, 129));
  EXPECT_THAT(bits_of(sums.values), ElementsAre(0x80000000u, 0x40000000u, 0u));
  sum.take(sums);
  EXPECT_EQ(sums.size(), 0u);
  EXPECT_THROW(sum.add({.indices = {130}, .values = {1}}), UsageError);
}

}  // namespace
}  // namespace kolo
