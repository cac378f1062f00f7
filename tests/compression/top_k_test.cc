#include "compression/kernels/top_k.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "compression/kernels/radix_select.h"
#include "compression/kernels/top_k_workspace.h"
#include "tests/compression/top_k_cases.h"

namespace kolo {
namespace {

using testing::ElementsAre;

TEST(TopKTest, TakesTheLargestOutOfTheResidual) {
  std::vector<float> residual = {1, -2, 0, 4, 0};
  const std::vector<float> gradient = {0, -3, 1, -4, 2};
  std::vector<std::uint32_t> indices(2);
  std::vector<float> values(2);
  top_k({.residual = residual.data(),
         .gradient = gradient.data(),
         .count = 5,
         .k = 2,
         .indices = indices.data(),
         .values = values.data()});
  EXPECT_THAT(indices, ElementsAre(1, 4));
  EXPECT_THAT(values, ElementsAre(-5, 2));
  EXPECT_THAT(residual, ElementsAre(1, 0, 1, 0, 0));
}

TEST(TopKTest, EqualsSortingForEveryKindOfNumber) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{20011}}) {
    for (const test::TopKCase& input : test::top_k_cases(count, 17)) {
      for (const std::size_t k : test::top_k_ks(count)) {
        SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " + std::to_string(count));
        const test::TopKAnswer expected = test::top_k_by_sorting(input, k);
        std::vector<float> residual = input.residual;
        std::vector<std::uint32_t> indices(k);
        std::vector<float> values(k);
        top_k({.residual = residual.data(),
               .gradient = input.gradient.data(),
               .count = count,
               .k = k,
               .indices = indices.data(),
               .values = values.data()});
        ASSERT_EQ(indices, expected.indices);
        ASSERT_EQ(test::bits_of(values), test::bits_of(expected.values));
        ASSERT_EQ(test::bits_of(residual), test::bits_of(expected.residual));
      }
    }
  }
}

TEST(TopKTest, RefusesMoreThanThereAre) {
  EXPECT_THROW(top_k({.count = 3, .k = 4}), UsageError);
  EXPECT_THROW(top_k({.count = kMostTopKElements}), UsageError);
}

TEST(RadixSelectTest, DigitsMakeUpAKey) {
  unsigned bits = 0;
  for (int i = radix::kDigitCount; i-- > 0;) {
    EXPECT_EQ(radix::digit(i).shift, bits);
    bits += radix::digit(i).bits;
  }
  EXPECT_EQ(bits, 31u);
  const std::uint32_t key = 0x7fc12345;
  EXPECT_EQ(radix::digit(0).prefix(key), 0u);
  EXPECT_EQ(radix::digit(1).prefix(key), radix::digit(0).of(key));
}

TEST(RadixSelectTest, KeysOrderMagnitudes) {
  const auto key = [](float value) { return radix::key_of(radix::accumulate(value, 0.0f)); };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending = {
      0.0f, 1e-45f, 1e-38f, 1.0f, 1.0000001f, kInfinity, std::numeric_limits<float>::quiet_NaN()};
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(key(ascending[i - 1]), key(ascending[i]));
    EXPECT_EQ(key(ascending[i]), key(-ascending[i]));
  }
  EXPECT_EQ(key(-0.0f), key(0.0f));
}

TEST(RadixSelectTest, FindsTheBinOfEveryElement) {
  const std::uint32_t counts[] = {3, 0, 2, 1, 0};
  const std::uint32_t bin_of[] = {3, 2, 2, 0, 0, 0};  // From the top.
  const std::uint32_t needed[] = {1, 1, 2, 1, 2, 3};
  for (std::uint32_t need = 1; need <= 6; ++need) {
    const radix::Bin bin = radix::find_bin(counts, 5, need);
    EXPECT_EQ(bin.index, bin_of[need - 1]);
    EXPECT_EQ(bin.need, needed[need - 1]);
  }
}

TEST(TopKPlanTest, SectionsCoverTheElementsAndArraysDoNotOverlap) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2048},
                                  std::size_t{2049}, std::size_t{1} << 28, kMostTopKElements - 1}) {
    SCOPED_TRACE(count);
    const TopKPlan plan = plan_top_k(count);
    EXPECT_EQ(plan.section % TopKPlan::kTile, 0u);
    EXPECT_GE(plan.section * plan.sections, count);
    EXPECT_LE(plan.sections, TopKPlan::kMostSections);
    if (count > 0) {
      EXPECT_LT(plan.section * (plan.sections - 1), count);
    }
    const std::size_t list = plan.sections * plan.most_survivors * 4;
    EXPECT_GE(plan.survivor_indices, sizeof(TopKCounters));
    EXPECT_GE(plan.survivor_values, plan.survivor_indices + list);
    EXPECT_GE(plan.survivor_counts, plan.survivor_values + list);
    EXPECT_GE(plan.above, plan.survivor_counts + plan.sections * 4);
    EXPECT_GE(plan.equal, plan.above + plan.sections * 4);
    EXPECT_GE(plan.bytes, plan.equal + plan.sections * 4);
  }
}

}  // namespace
}  // namespace kolo
