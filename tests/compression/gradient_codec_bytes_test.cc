// Compares the byte counts of transports with the formulas of payloads.

#include <vector>

#include <gtest/gtest.h>

#include "compression/quantised_codec.h"
#include "tests/compression/compressed_cases.h"
#include "tests/compression/quantised_oracle.h"
#include "tests/compression/sparse_oracle.h"

namespace kolo::test {
namespace {

/// Bytes that a rank sends in each phase of a step, computed by the formulas of payloads from the
/// pairs that it sends. With all-gather, the second phase is empty.
struct Phases {
  std::size_t shares = 0;
  std::size_t results = 0;
};

Phases expected_phases(int rank, ExchangeRoute route, const SparsePlan& plan,
                       const SparseOracle& oracle) {
  Phases phases;
  const int ranks = plan.ranks;
  if (route == ExchangeRoute::kAllGather) {
    phases.shares = static_cast<std::size_t>(ranks - 1) * plan.contribution().bytes(plan.k);
  } else {
    for (int owner = 0; owner < ranks; ++owner) {
      if (owner != rank) phases.shares += plan.share().bytes(oracle.sent(rank, owner));
    }
    phases.results = static_cast<std::size_t>(ranks - 1) * plan.result().bytes(oracle.kept(rank));
  }
  return phases;
}

// Transports count the bytes of the formulas for each phase and for the pairs of plain arithmetic,
// and never more than planned.
TEST_F(GradientCodecTest, CountedBytesAreThoseOfTheFormulas) {
  const std::vector<std::size_t> counts{30000, 48, 40000};
  for (const int ranks : {2, 3, 5, 8, 16}) {
    SparseOptions options = options_of(counts, 0.01);
    const std::vector<int> nodes(static_cast<std::size_t>(ranks), 1);
    const auto grid = ProcessGrid::with_node_sizes(nodes);
    const SparsePlan plan = sparse_layout(0, grid, options).plan;
    std::vector<std::size_t> ks;
    for (const std::size_t count : counts) ks.push_back(pairs_to_keep(0.01, count));
    SparseOracle oracle(plan);
    const auto gradients = gradients_of(random_, options, ranks, normal);
    oracle.step(gradients, ks, 1.0f);
    for (const ExchangeRoute route : kRoutes) {
      options.route = route;
      SCOPED_TRACE(text(options, nodes));
      CompressedJob job(nodes, options);
      ASSERT_TRUE(job.step(gradients));
      for (int rank = 0; rank < ranks; ++rank) {
        const Phases phases = expected_phases(rank, route, plan, oracle);
        ASSERT_EQ(job.rank(rank).sent_bytes(), phases.shares + phases.results) << rank;
        ASSERT_EQ(job.rank(rank).sent_bytes(), job.rank(rank).network_bytes());
        ASSERT_LE(job.rank(rank).sent_bytes(), planned_exchange(rank, grid, options).bytes);
      }
    }
  }
}

// Pairs take 6 bytes to owners and 8 bytes back for any number of ranks, apart from headers. The
// other properties also hold: all ranks agree, and nothing is lost.
TEST_F(GradientCodecTest, BytesDoNotGrowWithTheNumberOfRanks) {
  for (const int ranks : {2, 16, 64}) {
    const SparseOptions options = options_of({65536}, 0.02);
    CompressedJob job(std::vector<int>(static_cast<std::size_t>(ranks), 1), options);
    const auto gradients = gradients_of(random_, options, ranks, lattice);
    ASSERT_TRUE(job.step(gradients));
    Sums put_in = zeros(options), came_out = residual_sums(job, options);
    for (const Tensors& own : gradients) add(put_in, own, 1);
    add(came_out, job.rank(0).results(), ranks);
    ASSERT_EQ(came_out, put_in) << ranks << " ranks, seed " << kGroupSeed;
    const auto others = static_cast<std::size_t>(ranks - 1);
    const std::size_t k = job.codec(0).stats().k;
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(job.rank(rank).results(), job.rank(0).results());
      // To owners, this counts header, segment, padding and page; back, it counts header, segment,
      // page and a rounded quota.
      EXPECT_LE(job.rank(rank).sent_bytes(), 14 * k + others * (16 + 8 + 2 + 4 + 16 + 8 + 4 + 8))
          << ranks << " ranks, seed " << kGroupSeed;
    }
  }
}

TEST_F(GradientCodecTest, QuantisedBytesAreWithinTheBars) {
  for (const CompressionMethod* method : coded_methods()) {
    if (!method->codes_sums) continue;
    for (const int ranks : {2, 8}) {
      SparseOptions options = options_of({150'000, 60'000}, 0.1);
      options.method = method;
      for (const QuotaRule rule : kRules) {
        options.rule = rule;
        const std::vector<int> nodes(static_cast<std::size_t>(ranks), 1);
        SCOPED_TRACE(text(options, nodes));
        CompressedJob job(nodes, options);
        ASSERT_TRUE(job.step(gradients_of(random_, options, ranks, normal)));
        const double dense = 2.0 * (ranks - 1) / ranks * sizeof(float) * 210'000;
        const double there = plain_methods().at(method->name).most_bytes;
        const double bar = rule == QuotaRule::kQuota ? there : (there + 0.51) / 2;
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_LE(static_cast<double>(job.rank(rank).sent_bytes()) / dense, bar);
        }
      }
    }
  }
}

// Each rank sends the numbers of both factors to their owners, and sums of its own numbers to all.
TEST_F(GradientCodecTest, PowerSgdBytesAreThoseOfTheFactors) {
  for (const int ranks : {2, 16}) {
    SparseOptions options = options_of({150'000, 60'000}, 0.01);
    options.method = &methods::power_sgd;
    options.matrix_rank = 4;
    options.scope = SparseScope::kFlat;
    CompressedJob job(std::vector<int>(static_cast<std::size_t>(ranks), 1), options);
    ASSERT_TRUE(job.step(gradients_of(random_, options, ranks, normal)));
    const SparsePlan plan = sparse_layout(0, ProcessGrid::with_node_sizes({ranks}), options).plan;
    const auto others = static_cast<std::size_t>(ranks - 1);
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t bytes = 2 * 2 * others * sizeof(CodesHeader);
      for (const std::size_t count : plan.factors) {
        const std::size_t own = BlockOwnership(count, ranks).local_count(rank);
        bytes += sizeof(float) * (count - own + others * own);
      }
      ASSERT_EQ(job.rank(rank).sent_bytes(), bytes);
      EXPECT_LT(static_cast<double>(bytes), 0.04 * 2 * 4 * 210'000) << ranks;
    }
  }
}

}  // namespace
}  // namespace kolo::test
