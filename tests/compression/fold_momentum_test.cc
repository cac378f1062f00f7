#include <algorithm>
#include <bit>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "compression/kernels/fold_scan.h"
#include "compression/kernels/radix_select.h"
#include "tests/support/simd_targets.h"

namespace kolo {
namespace {

constexpr std::uint64_t kSeed = 20261121;

/// Ordinary numbers, zeros of both signs, denormals, infinities, NaN of any kind.
std::vector<float> random_values(std::mt19937_64& random, std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    switch (random() % 8) {
      case 0:
        value = std::bit_cast<float>(bits);
        break;
      case 1:
        value = std::bit_cast<float>(bits & 0x807fffffu);
        break;
      case 2:
        value = std::bit_cast<float>(bits & 0x80000000u);
        break;
      default:
        value = normal(random);
    }
  }
  return values;
}

bool are_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

TEST(FoldMomentumTest, IsTheReferenceOnEveryInstructionSet) {
  std::mt19937_64 random(kSeed);
  for (const std::int64_t target : test::simd_targets()) {
    const test::ScopedSimdTarget scoped(target);
    for (const std::size_t count :
         std::initializer_list<std::size_t>{0, 1, 63, 64, 65, 1000, 1001}) {
      for (const bool nesterov : {false, true}) {
        SCOPED_TRACE(testing::Message() << "target " << target << ", " << count << " elements, "
                                        << (nesterov ? "Nesterov" : "plain") << ", seed " << kSeed);
        const std::vector<float> residual = random_values(random, count);
        const std::vector<float> gradient = random_values(random, count);
        const std::vector<float> before = random_values(random, count);
        const auto run = [&](auto fold, std::vector<float>& sums, std::vector<float>& after) {
          std::vector<std::uint32_t> indices(count + kCandidateSlack);
          std::vector<float> values(count + kCandidateSlack);
          const FoldScan scan{.residual = residual.data(),
                              .gradient = gradient.data(),
                              .sums = sums.data(),
                              .scale = 0.75f,
                              .momentum = {.before = before.data(),
                                           .after = after.data(),
                                           .factor = 0.9f,
                                           .nesterov = nesterov},
                              .begin = 0,
                              .end = count,
                              .least_key = radix::key_of(1.0f)};
          const std::size_t found =
              fold(scan, Candidates{.indices = indices.data(), .values = values.data()});
          indices.resize(found);
          for (std::size_t j = 0; j < found; ++j) {
            EXPECT_EQ(radix::key_of(values[j]), radix::key_of(sums[indices[j]]));
          }
          return indices;
        };
        std::vector<float> sums(count), after(count), expected_sums(count), expected_after(count);
        EXPECT_EQ(run(fold_scan, sums, after),
                  run(reference::fold_scan, expected_sums, expected_after));
        EXPECT_TRUE(are_equal(sums, expected_sums));
        EXPECT_TRUE(are_equal(after, expected_after));
      }
    }
  }
}

// The recurrences of MomentumCorrection, element by element, and what the residual takes.
TEST(FoldMomentumTest, AccumulatesAsItSays) {
  const float gradient = 3.0f, before = 8.0f, residual = 100.0f;
  for (const bool nesterov : {false, true}) {
    float sum = 0, after = 0;
    std::uint32_t index[1 + kCandidateSlack];
    float value[1 + kCandidateSlack];
    const FoldScan scan{
        .residual = &residual,
        .gradient = &gradient,
        .sums = &sum,
        .scale = 2.0f,
        .momentum = {.before = &before, .after = &after, .factor = 0.5f, .nesterov = nesterov},
        .begin = 0,
        .end = 1};
    EXPECT_EQ(fold_scan(scan, {.indices = index, .values = value}), 1u);
    EXPECT_EQ(after, nesterov ? 7.0f : 10.0f);
    EXPECT_EQ(sum, nesterov ? 113.0f : 110.0f);
  }
}

}  // namespace
}  // namespace kolo
