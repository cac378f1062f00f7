// Tests parts of exchanges: owners, routes, sums of owners, and the common threshold.

#include <cmath>
#include <initializer_list>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "compression/gradient_codec.h"
#include "compression/sparse_exchange.h"
#include "tests/compression/sparse_numbers.h"

namespace kolo::test {
namespace {

using ::testing::ElementsAre;

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

// A tensor's pairs, exponent and values do not depend on the other tensors.
TEST(PrepareTest, TensorsArePreparedAlikeInAnyGroup) {
  constexpr std::uint32_t kSeed = 71;
  std::mt19937 random(kSeed);
  for (const DType wire : kWires) {
    std::vector<Pairs> tensors(3);
    for (Pairs& pairs : tensors) {
      const float magnitude = std::ldexp(1.0f, static_cast<int>(random() % 60) - 30);
      for (std::uint32_t i = 0; i < 50; ++i) pairs.add(i, magnitude * normal(random));
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

}  // namespace
}  // namespace kolo::test
