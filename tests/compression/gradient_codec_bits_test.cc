// Tests the bits of results and residuals. They equal those of independent code and of the dense
// path, and are equal on all ranks.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "comm/kernels/reduce_kernels.h"
#include "tests/compression/compressed_cases.h"
#include "tests/compression/sparse_oracle.h"

namespace kolo::test {
namespace {

// On all ranks, on all routes and for any interleaving, results and residuals have the bits of
// plain arithmetic.
TEST_F(GradientCodecTest, GivesTheBitsOfPlainArithmetic) {
  for (int round = 0; round < 24; ++round) {
    SparseOptions options = any_options(random_);
    options.scope = SparseScope::kFlat;
    const int ranks = 1 + static_cast<int>(random_() % 8);
    const std::vector<int> nodes = ranks > 2 ? std::vector<int>{ranks - 1, 1} : std::vector{ranks};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    SparsePlan plan{
        .tensor_counts = {}, .ranks = ranks, .rule = options.rule, .wire = options.wire};
    std::vector<std::size_t> ks;
    for (const FeedbackTensor& tensor : options.tensors) {
      plan.tensor_counts.push_back(tensor.count);
      ks.push_back(pairs_to_keep(options.density, tensor.count));
      plan.k += ks.back();
    }
    SparseOracle expected(plan);
    std::vector<std::unique_ptr<CompressedJob>> jobs;
    for (const ExchangeRoute route : kRoutes) {
      options.route = route;
      jobs.push_back(
          std::make_unique<CompressedJob>(nodes, options, any_placement(random_), random_()));
    }
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of(random_, options, ranks, normal);
      expected.step(gradients, ks, static_cast<float>(ranks));
      std::vector<std::uint32_t> residuals;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto own = bits_of(expected.residual(rank));
        residuals.insert(residuals.end(), own.begin(), own.end());
      }
      for (const auto& job : jobs) {
        ASSERT_TRUE(job->step(gradients));
        for (int rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(bits_of(job->rank(rank).results()), bits_of(std::span(expected.output())));
        }
        ASSERT_EQ(residual_bits(*job), residuals);
      }
    }
  }
}

// The test includes nodes of equal size, which first sum within the node.
TEST_F(GradientCodecTest, DensityOneEqualsTheDensePath) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{1}, {2}, {5}, {1, 1, 1}, {2, 2}, {3, 3}, {2, 1}}) {
    for (SparseOptions options : all_ways(options_of({777, 1, 1600}, 1.0))) {
      options.wire = DType::kFloat32;
      SCOPED_TRACE(text(options, nodes));
      CompressedJob sparse(nodes, options);
      options.warm_up.dense_steps = 1;
      CompressedJob dense(nodes, options);
      const auto gradients = gradients_of(random_, options, sparse.size(), normal);
      ASSERT_TRUE(sparse.step(gradients));
      ASSERT_TRUE(dense.step(gradients));
      EXPECT_GT(sparse.codec(0).stats().k, 0u);
      EXPECT_EQ(dense.codec(0).stats().k, 0u);
      ASSERT_EQ(bits_of(sparse.rank(0).results()), bits_of(dense.rank(0).results()));
      if (nodes.size() > 1 && nodes[0] > 1 && nodes[0] == nodes[1]) continue;
      for (std::size_t t = 0; t < options.tensors.size(); ++t) {
        std::vector<const void*> sources;
        for (const Tensors& own : gradients) sources.push_back(own[t].data());
        std::vector<float> expected(options.tensors[t].count);
        reduce(DType::kFloat32, ReduceOp::kSum, expected.data(), sources, expected.size(),
               1.0 / sparse.size());
        ASSERT_EQ(bits_of(std::span(sparse.rank(0).results()[t])), bits_of(std::span(expected)));
      }
    }
  }
}

// Every method has equal bits on all ranks and on all routes.
TEST_F(GradientCodecTest, Edges) {
  std::vector<Number> numbers(std::begin(kEdgeNumbers), std::end(kEdgeNumbers));
  numbers.push_back(normal);
  for (const Number number : numbers) {
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{1}, {3, 0, 2}, {64 * 5 + 1, 0, 63}}) {
      for (const std::vector<int>& nodes : {std::vector<int>{5}, {2, 2, 2}, {3, 1}}) {
        std::map<std::pair<const CompressionMethod*, QuotaRule>, std::vector<std::uint32_t>> bits;
        const std::mt19937 random = random_;
        for (const SparseOptions& options : all_ways_of_all_methods(options_of(counts, 0.1))) {
          SCOPED_TRACE(text(options, nodes));
          CompressedJob job(nodes, options);
          random_ = random;
          for (int step = 0; step < 2; ++step) {
            ASSERT_TRUE(job.step(gradients_of(random_, options, job.size(), number)));
            for (int rank = 1; rank < job.size(); ++rank) {
              ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(job.rank(0).results()));
            }
          }
          std::vector<std::uint32_t> own = bits_of(job.rank(0).results());
          std::ranges::move(residual_bits(job), std::back_inserter(own));
          ASSERT_EQ(bits.try_emplace({options.method, options.rule}, own).first->second, own);
        }
      }
    }
  }
}

// One codec has layers with very different gradients. Each layer keeps nearly the energy of its own
// largest sums. If layers were ranked together, the first would keep hardly any.
TEST_F(GradientCodecTest, QuotaKeepsNearlyTheEnergyOfTheExactChoiceOfEachTensor) {
  constexpr std::size_t kCount = 40000, kKept = kCount / 100;
  const SparseOptions options = options_of({kCount, kCount, kCount, kCount}, 0.01);
  CompressedJob job({16}, options);
  auto gradients = gradients_of(random_, options, job.size(), normal);
  for (Tensors& own : gradients) {
    for (std::size_t t = 0; t < 4; ++t) {
      for (float& value : own[t]) value = std::ldexp(value, 3 * static_cast<int>(t));
    }
  }
  const auto energy_of_largest = [](std::span<const float> values) {
    std::vector<double> squares;
    for (const float value : values) squares.push_back(double{value} * double{value});
    std::ranges::sort(squares, std::greater<>());
    return std::accumulate(squares.begin(), squares.begin() + kKept, 0.0);
  };
  ASSERT_TRUE(job.step(gradients));
  for (std::size_t t = 0; t < 4; ++t) {
    SCOPED_TRACE("tensor " + std::to_string(t) + ", seed " + std::to_string(kGroupSeed));
    SparseOptions one = options_of({kCount}, 0.01);
    one.rule = QuotaRule::kLossless;
    CompressedJob alone({16}, one);
    std::vector<Tensors> own;
    for (const Tensors& rank : gradients) own.push_back({rank[t]});
    ASSERT_TRUE(alone.step(own));
    EXPECT_GE(energy_of_largest(job.rank(0).results()[t]),
              0.95 * energy_of_largest(alone.rank(0).results()[0]));
  }
}

}  // namespace
}  // namespace kolo::test
