#include "compression/kernels/top_k_selector.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "compression/kernels/nth_key.h"
#include "tests/compression/top_k_cases.h"
#include "tests/support/sanitized.h"
#include "tests/support/simd_targets.h"

namespace kolo {
namespace {

using testing::ElementsAre;

constexpr std::uint32_t kSeed = 29;
constexpr std::uint32_t kHints[] = {0,          1,          0x3f000000, 0x40000000,
                                    0x7f800000, 0x7fc00001, 0xffffffff};

struct Selected : test::TopKAnswer {
  SelectionReport report = {};
};

Selected selected(TopKSelector& selector, const test::TopKCase& input, float scale, std::size_t k,
                  SelectionHint& hint) {
  const std::size_t count = input.residual.size();
  Selected result;
  result.sums.assign(count, -1.0f);
  result.indices.resize(k);
  result.values.resize(k);
  result.report = selector.select({.residual = input.residual.data(),
                                   .gradient = input.gradient.data(),
                                   .sums = result.sums.data(),
                                   .scale = scale,
                                   .count = count,
                                   .k = k,
                                   .indices = result.indices.data(),
                                   .values = result.values.data()},
                                  hint);
  return result;
}

// The selection depends only on the sums and k. One selector serves all sizes one after the other,
// so that remains of an earlier selection in its memory would be detected.
TEST(TopKSelectorTest, EqualsTheOracleForAnyHintOnEveryInstructionSet) {
  const std::vector<std::int64_t> targets = test::simd_targets();
  std::vector<TopKSelector> selectors(targets.size());
  // The largest count exceeds one block of the selector, 8192 elements.
  for (const std::size_t count :
       std::initializer_list<std::size_t>{test::kSanitized ? 5003 : 9203, 1000, 64, 7, 1}) {
    for (const test::TopKCase& input : test::top_k_cases(count, kSeed)) {
      for (const std::size_t k : test::top_k_ks(count)) {
        const test::TopKAnswer expected = test::top_k_by_sorting(input, 0.25f, k);
        for (std::size_t t = 0; t < targets.size(); ++t) {
          const test::ScopedSimdTarget scoped(targets[t]);
          for (const std::uint32_t least_key : kHints) {
            SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " + std::to_string(count) +
                         ", hint " + std::to_string(least_key) + ", target " +
                         std::to_string(targets[t]) + ", seed " + std::to_string(kSeed));
            SelectionHint hint{.least_key = least_key};
            expect_equal(selected(selectors[t], input, 0.25f, k, hint), expected);
            expect_equal(selected(selectors[t], input, 0.25f, k, hint), expected);
          }
        }
      }
    }
  }
}

TEST(TopKSelectorTest, RandomShapesEqualTheOracle) {
  std::mt19937 random(kSeed);
  TopKSelector selector;
  for (int round = 0; round < 60; ++round) {
    const std::size_t count = 1 + random() % 20000;
    const std::size_t k = random() % (round % 2 == 0 ? count / 50 + 1 : count + 1);
    const std::vector<test::TopKCase> cases =
        test::top_k_cases(count, static_cast<std::uint32_t>(random()));
    const test::TopKCase& input = cases[random() % cases.size()];
    SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " + std::to_string(count) +
                 ", round " + std::to_string(round) + ", seed " + std::to_string(kSeed));
    SelectionHint hint{.least_key = static_cast<std::uint32_t>(random())};
    expect_equal(selected(selector, input, -3.0f, k, hint),
                 test::top_k_by_sorting(input, -3.0f, k));
  }
}

TEST(TopKSelectorTest, SumsMayBeEitherInput) {
  const test::TopKCase input = test::top_k_cases(5001, kSeed)[0];
  const test::TopKAnswer expected = test::top_k_by_sorting(input, 1.0f, 50);
  for (const bool into_residual : {true, false}) {
    test::TopKCase in_place = input;
    std::vector<float>& sums = into_residual ? in_place.residual : in_place.gradient;
    test::TopKAnswer actual{
        .sums = {}, .indices = std::vector<std::uint32_t>(50), .values = std::vector<float>(50)};
    SelectionHint too_high{.least_key = 0x7f000000};
    TopKSelector().select({.residual = in_place.residual.data(),
                           .gradient = in_place.gradient.data(),
                           .sums = sums.data(),
                           .count = 5001,
                           .k = 50,
                           .indices = actual.indices.data(),
                           .values = actual.values.data()},
                          too_high);
    actual.sums = sums;
    expect_equal(actual, expected);
  }
}

// The order of magnitudes determines how often candidates are cut back.
TEST(TopKSelectorTest, AscendingAndDescendingMagnitudes) {
  constexpr std::size_t kCount = 50021;
  test::TopKCase ascending{.name = "ascending",
                           .residual = std::vector<float>(kCount, 0.0f),
                           .gradient = std::vector<float>(kCount)};
  for (std::size_t i = 0; i < kCount; ++i) ascending.gradient[i] = static_cast<float>(i);
  test::TopKCase descending = ascending;
  std::ranges::reverse(descending.gradient);
  TopKSelector selector;
  for (const test::TopKCase& input : {ascending, descending}) {
    for (const std::size_t k : std::initializer_list<std::size_t>{1, 100, 5000, kCount}) {
      SCOPED_TRACE(input.name + std::to_string(k));
      SelectionHint hint;
      expect_equal(selected(selector, input, 1.0f, k, hint),
                   test::top_k_by_sorting(input, 1.0f, k));
    }
  }
}

// After a cut, values must exceed the k-th so far, even by one last bit.
TEST(TopKSelectorTest, OneLastBitMoreIsEnoughAfterACut) {
  constexpr std::size_t kCount = 60000;
  test::TopKCase input{.name = "nearly equal",
                       .residual = std::vector<float>(kCount, 0.0f),
                       .gradient = std::vector<float>(kCount, 1.0f)};
  input.gradient[50000] = std::nextafter(-1.0f, -2.0f);
  TopKSelector selector;
  for (const std::size_t k : std::initializer_list<std::size_t>{1, 3, 4000}) {
    SelectionHint hint;
    expect_equal(selected(selector, input, 1.0f, k, hint), test::top_k_by_sorting(input, 1.0f, k));
  }
}

TEST(TopKSelectorTest, SteadyGradientsNeedOnePassAndFewCandidates) {
  constexpr std::size_t kCount = 200000;
  constexpr std::size_t kKept = 2000;
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  test::TopKCase input{.name = "steady",
                       .residual = std::vector<float>(kCount, 0.0f),
                       .gradient = std::vector<float>(kCount)};
  TopKSelector selector;
  SelectionHint hint;
  for (int step = 0; step < 20; ++step) {
    for (float& value : input.gradient) value = normal(random);
    const Selected result = selected(selector, input, 1.0f, kKept, hint);
    if (step >= 10) {
      EXPECT_FALSE(result.report.rescanned) << "step " << step << ", seed " << kSeed;
      EXPECT_LE(result.report.candidates, 3 * kKept) << "step " << step << ", seed " << kSeed;
    }
    input.residual = result.sums;
    for (const std::uint32_t i : result.indices) input.residual[i] = 0.0f;
  }
}

TEST(TopKSelectorTest, ReportsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t k : std::initializer_list<std::size_t>{0, 1, 700}) {
    for (const float bad : {kInfinity, -kInfinity, kNaN}) {
      test::TopKCase input{.name = "one bad",
                           .residual = std::vector<float>(9000, 1.0f),
                           .gradient = std::vector<float>(9000, 1.0f)};
      SelectionHint hint;
      TopKSelector selector;
      EXPECT_TRUE(selected(selector, input, 1.0f, k, hint).report.finite);
      input.gradient[8999] = bad;
      EXPECT_FALSE(selected(selector, input, 1.0f, k, hint).report.finite);
    }
  }
}

// A float cannot represent all indices beyond 2^24, so indices must be integers.
TEST(TopKSelectorTest, IndicesAreExactBeyond24Bits) {
  constexpr std::size_t kCount = (std::size_t{1} << 24) + 1001;
  std::vector<float> residual(kCount), gradient(kCount);
  const std::vector<std::uint32_t> expected = {5, (1u << 24) - 1, (1u << 24) + 1, (1u << 24) + 3,
                                               static_cast<std::uint32_t>(kCount) - 1};
  for (const std::uint32_t i : expected) gradient[i] = 1.0f;
  gradient[kCount - 2] = 0.5f;
  std::vector<std::uint32_t> indices(expected.size());
  std::vector<float> values(expected.size());
  TopKSelector selector;
  SelectionHint hint;
  selector.select({.residual = residual.data(),
                   .gradient = gradient.data(),
                   .sums = residual.data(),
                   .count = kCount,
                   .k = expected.size(),
                   .indices = indices.data(),
                   .values = values.data()},
                  hint);
  EXPECT_EQ(indices, expected);
}

TEST(TopKSelectorTest, RefusesMoreThanThereAre) {
  SelectionHint hint;
  EXPECT_THROW(TopKSelector().select({.count = 3, .k = 4}, hint), UsageError);
  EXPECT_THROW(TopKSelector().select({.count = kMostTopKElements}, hint), UsageError);
}

// Tests with momentum and without. Another case has the second kind of number.
TEST(FoldScanTest, AllTargetsGiveTheBitsOfTheReference) {
  constexpr std::size_t kCount = 1013;
  const std::vector<test::TopKCase> inputs = test::top_k_cases(kCount, kSeed);
  for (std::size_t c = 0; c < 2 * inputs.size(); ++c) {
    const test::TopKCase& input = inputs[c / 2];
    const std::vector<float>& before = inputs[(c / 2 + 6) % inputs.size()].gradient;
    for (const std::uint32_t least_key : {0u, 1u, 0x3f800000u, 0x7f800000u, 0x7fffffffu}) {
      const auto run = [&](auto scan_block, std::size_t begin) {
        std::vector<float> after(kCount, 7.0f);
        test::TopKAnswer result{.sums = std::vector<float>(kCount, 7.0f),
                                .indices = std::vector<std::uint32_t>(kCount + kCandidateSlack),
                                .values = std::vector<float>(kCount + kCandidateSlack)};
        FoldScan scan{.residual = input.residual.data(),
                      .gradient = input.gradient.data(),
                      .sums = result.sums.data(),
                      .scale = 0.1f,
                      .begin = begin,
                      .end = 1012,
                      .least_key = least_key};
        if (c % 2 == 1) {
          scan.momentum = {.before = before.data(), .after = after.data(), .factor = 0.9f};
        }
        const std::size_t found =
            scan_block(scan, Candidates{result.indices.data(), result.values.data()});
        result.indices.resize(found);
        result.values.resize(found);
        result.sums.insert(result.sums.end(), after.begin(), after.end());
        return result;
      };
      for (const std::size_t begin : {0u, 5u, 1000u, 1012u}) {
        const test::TopKAnswer expected = run(reference::fold_scan, begin);
        for (const std::int64_t target : test::simd_targets()) {
          const test::ScopedSimdTarget scoped(target);
          SCOPED_TRACE(input.name + ", target " + std::to_string(target));
          expect_equal(run(fold_scan, begin), expected);
        }
      }
    }
  }
}

TEST(FoldScanTest, KeepingWritesNothingBehindTheRoom) {
  std::vector<std::uint32_t> indices(200);
  std::vector<float> values(200);
  for (std::size_t i = 0; i < 200; ++i) {
    indices[i] = static_cast<std::uint32_t>(i);
    values[i] = i % 3 == 0 ? 2.0f : 1.0f;
  }
  for (const std::int64_t target : test::simd_targets()) {
    const test::ScopedSimdTarget scoped(target);
    std::vector<std::uint32_t> kept_indices(68, 99);
    std::vector<float> kept_values(68, 99.0f);
    EXPECT_EQ(keep_candidates({indices.data(), values.data()}, 200, 0x40000000,
                              {kept_indices.data(), kept_values.data()}, 67),
              67u);
    for (std::size_t j = 0; j < 67; ++j) EXPECT_EQ(kept_indices[j], 3 * j);
    EXPECT_EQ(kept_indices[67], 99u);
    EXPECT_EQ(kept_values[67], 99.0f);
  }
}

TEST(NthKeyTest, KeysOrderMagnitudes) {
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

TEST(NthKeyTest, EqualsSortingOnEveryInstructionSet) {
  std::mt19937 random(kSeed);
  std::vector<std::uint32_t> scratch;
  for (const std::int64_t target : test::simd_targets()) {
    const test::ScopedSimdTarget scoped(target);
    for (const std::size_t count : std::initializer_list<std::size_t>{1, 63, 64, 65, 3001}) {
      for (const test::TopKCase& input : test::top_k_cases(count, kSeed)) {
        std::vector<float> values = input.gradient;
        std::vector<std::uint32_t> keys;
        for (float& value : values) {
          value = radix::accumulate(value, 0.0f);
          keys.push_back(radix::key_of(value));
        }
        std::ranges::sort(keys, std::greater<>());
        for (const std::uint32_t floor : {0u, keys.back() / 2, keys.back()}) {
          for (const std::size_t k : {std::size_t{1}, 1 + random() % count, count}) {
            const radix::NthKey nth = radix::nth_largest_key(values, k, floor, scratch);
            SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " + std::to_string(count) +
                         ", target " + std::to_string(target) + ", seed " + std::to_string(kSeed));
            ASSERT_EQ(nth.key, keys[k - 1]);
            ASSERT_EQ(nth.largest, keys[0]);
            ASSERT_EQ(nth.equal, static_cast<std::size_t>(std::ranges::count(keys, nth.key)));
            const auto above = std::ranges::count_if(keys, [&](auto key) { return key > nth.key; });
            ASSERT_EQ(nth.need, k - static_cast<std::size_t>(above));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kolo
