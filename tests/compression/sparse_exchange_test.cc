#include "compression/sparse_exchange.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "comm/kernels/reduce_kernels.h"
#include "tests/compression/exchange_shapes.h"
#include "tests/support/sanitized.h"

namespace kolo::test {
namespace {

/// Shapes from a seed, so many; fewer where a sanitizer takes its time, which sees the same code in
/// each.
constexpr int shapes(int many) { return kSanitized ? many / 4 : many; }

// I2 and I6: the same result on all ranks, and the same bits, of results and residuals, whichever
// way the pairs take.
TEST_F(SparseExchangeTest, AllRoutesGiveAllRanksTheSameBits) {
  for (int round = 0; round < shapes(80); ++round) {
    const ExchangeShape shape = random_shape(random_);
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(kExchangeSeed) +
                 ": " + shape.text());
    std::vector<SimulatedExchange> exchanges;
    for (std::size_t i = 0; i < std::size(kRoutes); ++i) exchanges.emplace_back(shape.plan);
    for (int step = 0; step < 3; ++step) {
      const auto gradients =
          gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, normal);
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
  for (int round = 0; round < shapes(60); ++round) {
    const ExchangeShape shape = random_shape(random_);
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(kExchangeSeed) +
                 ": " + shape.text());
    SimulatedExchange exchange(shape.plan);
    std::vector<double> put_in(shape.plan.count()), came_out(shape.plan.count());
    for (int step = 0; step < 6; ++step) {
      const auto gradients =
          gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, lattice);
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
      ExchangeShape shape = shape_of(ranks, {1000, 1, 777}, 1.0);
      shape.plan.rule = rule;
      shape.plan.wire = DType::kFloat32;
      SCOPED_TRACE(shape.text() + ", seed " + std::to_string(kExchangeSeed));
      const auto gradients =
          gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, normal);
      const auto divisor = static_cast<float>(ranks);
      SimulatedExchange exchange(shape.plan);
      exchange.step(gradients, shape.ks, ExchangeRoute::kPairwise, divisor);
      std::size_t begin = 0;
      for (std::size_t t = 0; t < shape.ks.size(); ++t) {
        std::vector<const void*> sources;
        for (const Tensors& own : gradients) sources.push_back(own[t].data());
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
    ExchangeShape shape = random_shape(random_);
    shape.plan.rule = QuotaRule::kLossless;
    SimulatedExchange exchange(shape.plan);
    exchange.step(gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, normal),
                  shape.ks, ExchangeRoute::kLogStep, 1.0f);
    std::vector<float> dense(shape.plan.count());
    for (const Contribution& contribution : exchange.contributions()) {
      Share share;
      whole(shape.plan, contribution, share);
      for (std::size_t j = 0; j < share.pairs.size(); ++j) {
        dense[share.pairs.indices[j]] += share.pairs.values[j];
      }
    }
    ASSERT_EQ(exchange.outputs()[0], dense) << shape.text() << ", seed " << kExchangeSeed;
  }
}

// Layers with very different gradients, each alone and all in one group: every one of them keeps
// nearly the energy of its own largest sums. Ranked together, the first would keep next to nothing.
TEST_F(SparseExchangeTest, QuotaKeepsNearlyTheEnergyOfTheExactChoiceOfEachTensor) {
  constexpr std::size_t kCount = 40000;
  ExchangeShape all = shape_of(16, {kCount, kCount, kCount, kCount}, 0.01);
  auto gradients = gradients_of(random_, all.plan.tensor_counts, all.plan.ranks, normal);
  for (Tensors& own : gradients) {
    for (std::size_t t = 0; t < 4; ++t) {
      for (float& value : own[t]) value = std::ldexp(value, 3 * static_cast<int>(t));
    }
  }
  const auto energies = [](std::span<const float> values) {
    std::vector<double> squares;
    for (const float value : values) squares.push_back(double{value} * double{value});
    std::ranges::sort(squares, std::greater<>());
    return squares;
  };
  SimulatedExchange together(all.plan);
  together.step(gradients, all.ks, ExchangeRoute::kPairwise, 1.0f);
  for (std::size_t t = 0; t < 4; ++t) {
    SCOPED_TRACE("tensor " + std::to_string(t) + ", seed " + std::to_string(kExchangeSeed));
    ExchangeShape one = shape_of(16, {kCount}, 0.01);
    one.plan.rule = QuotaRule::kLossless;
    std::vector<Tensors> own;
    for (const Tensors& rank : gradients) own.push_back({rank[t]});
    SimulatedExchange alone(one.plan);
    alone.step(own, one.ks, ExchangeRoute::kPairwise, 1.0f);
    const auto kept = energies(std::span(together.outputs()[0]).subspan(t * kCount, kCount));
    const auto all_sums = energies(alone.outputs()[0]);
    EXPECT_GE(
        std::accumulate(kept.begin(), kept.end(), 0.0),
        0.95 * std::accumulate(all_sums.begin(),
                               all_sums.begin() + static_cast<std::ptrdiff_t>(one.plan.k), 0.0));
  }
}

// I8, for the whole residual of one rank and float32 values.
TEST_F(SparseExchangeTest, WhatIsLeftIsAContraction) {
  for (int round = 0; round < 20; ++round) {
    const std::size_t count = 1 + random_() % 5000;
    ExchangeShape shape = shape_of(1, {count}, 0.001 + 0.5 * (round % 2));
    shape.plan.wire = DType::kFloat32;
    shape.plan.rule = QuotaRule::kLossless;
    SimulatedExchange exchange(shape.plan);
    const auto gradients =
        gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, normal);
    exchange.step(gradients, shape.ks, ExchangeRoute::kPairwise, 1.0f);
    double before = 0;
    for (const float value : gradients[0][0]) before += double{value} * double{value};
    const double after = std::pow(exchange.feedback(0).residual_norm(0), 2);
    const double share = static_cast<double>(shape.ks[0]) / static_cast<double>(count);
    // The squares are summed in float64: count roundings of a relative 2^-53 each.
    EXPECT_LE(after, (1 - share) * before + before * static_cast<double>(count) * 0x1p-52)
        << "seed " << kExchangeSeed;
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
      EXPECT_EQ(own.tensors[0], all.tensors[t]) << "seed " << kExchangeSeed;
      EXPECT_EQ(own.exponents[0], all.exponents[t]);
    }
  }
}

// I10: one bad number anywhere, and no residual of any rank has changed.
TEST_F(SparseExchangeTest, ABadNumberOnOneRankSkipsTheStepOnAll) {
  for (int round = 0; round < 20; ++round) {
    const ExchangeShape shape = random_shape(random_);
    if (shape.plan.count() == 0) continue;
    SimulatedExchange exchange(shape.plan);
    auto gradients = gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, normal);
    ASSERT_TRUE(exchange.step(gradients, shape.ks, ExchangeRoute::kPairwise, 1.0f));
    const auto before = residual_bits(exchange);
    Tensors& own = gradients[random_() % gradients.size()];
    const auto hit = std::ranges::find_if(own, [](const auto& tensor) { return !tensor.empty(); });
    (*hit)[random_() % hit->size()] = bad_number(round);
    EXPECT_FALSE(exchange.step(gradients, shape.ks, kRoutes[round % 3], 1.0f));
    ASSERT_EQ(residual_bits(exchange), before) << shape.text() << ", seed " << kExchangeSeed;
  }
}

// I11.
TEST_F(SparseExchangeTest, Edges) {
  for (const Number number : kEdgeNumbers) {
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{}, {0}, {1}, {3, 2}, {64 * 5 + 1, 0, 63}}) {
      for (const QuotaRule rule : kRules) {
        for (const DType wire : kWires) {
          ExchangeShape shape = shape_of(5, counts, 0.1);
          shape.plan.rule = rule;
          shape.plan.wire = wire;
          SCOPED_TRACE(shape.text());
          SimulatedExchange direct(shape.plan), gathered(shape.plan);
          for (int step = 0; step < 2; ++step) {
            const auto gradients =
                gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, number);
            ASSERT_TRUE(direct.step(gradients, shape.ks, ExchangeRoute::kLogStep, 1.0f));
            ASSERT_TRUE(gathered.step(gradients, shape.ks, ExchangeRoute::kAllGather, 1.0f));
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
  ExchangeShape shape = shape_of(3, {100, 20}, 0.1);
  shape.plan.k = 0;
  SimulatedExchange exchange(shape.plan);
  const auto gradients = gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, lattice);
  ASSERT_TRUE(exchange.step(gradients, {0, 0}, ExchangeRoute::kPairwise, 1.0f));
  for (const float value : exchange.outputs()[2]) EXPECT_EQ(value, 0.0f);
  EXPECT_EQ(residual_sums(exchange), gradient_sums(gradients));
}

TEST_F(SparseExchangeTest, ManyRanksAgreeAndConserveMass) {
  for (const int ranks : {64, 100, 256}) {
    ExchangeShape shape = shape_of(ranks, {9000, 500}, 0.01);
    SimulatedExchange exchange(shape.plan);
    const auto gradients =
        gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, lattice);
    exchange.step(gradients, shape.ks, ExchangeRoute::kLogStep, 1.0f);
    const std::vector<double> left = residual_sums(exchange);
    const std::vector<double> sums = gradient_sums(gradients);
    for (std::size_t i = 0; i < left.size(); ++i) {
      ASSERT_EQ(exchange.outputs()[0][i] + left[i], sums[i]) << ranks << " ranks";
    }
    for (const auto& output : exchange.outputs()) ASSERT_EQ(output, exchange.outputs()[0]);
  }
}

// I13: what is sent is what the formula says, with its parts written out here.
TEST_F(SparseExchangeTest, WireBytesEqualTheFormula) {
  for (const int ranks : {2, 3, 4, 7, 8, 16, 64}) {
    ExchangeShape shape = shape_of(ranks, {30000, 37, 40000}, 0.01);
    SCOPED_TRACE(shape.text() + ", seed " + std::to_string(kExchangeSeed));
    SimulatedExchange exchange(shape.plan);
    const auto gradients =
        gradients_of(random_, shape.plan.tensor_counts, shape.plan.ranks, normal);
    exchange.step(gradients, shape.ks, ExchangeRoute::kPairwise, 1.0f);
    const auto others = static_cast<std::size_t>(ranks - 1);
    const auto index_bytes_of = [](const PayloadPlan& plan, std::size_t pairs) {
      // One page, as each owner has fewer than 64 Ki elements.
      return plan.coding == IndexCoding::kU32 ? 4 * pairs : 4 + 2 * pairs;
    };
    const std::size_t quota = shape.plan.result().most_pairs;
    for (int rank = 0; rank < ranks; ++rank) {
      const WireAccount& account = exchange.accounts()[static_cast<std::size_t>(rank)];
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
      EXPECT_LE(
          account.split_bytes + account.gather_bytes,
          14 * (shape.plan.k + others * shape.ks.size()) + others * (16 + 24 + 2 + 4 + 16 + 8 + 4));
    }
    exchange.step(gradients, shape.ks, ExchangeRoute::kLogStep, 1.0f);
    for (const WireAccount& account : exchange.accounts()) {
      EXPECT_EQ(account.split_messages, static_cast<std::size_t>(log_step_rounds(ranks)));
    }
    exchange.step(gradients, shape.ks, ExchangeRoute::kAllGather, 1.0f);
    for (const WireAccount& account : exchange.accounts()) {
      EXPECT_EQ(account.split_bytes, 0u);
      EXPECT_EQ(account.gather_bytes, others * shape.plan.contribution().bytes(shape.plan.k));
    }
  }
}

}  // namespace
}  // namespace kolo::test
