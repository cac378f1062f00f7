// Compares top-k's kernels on the emulated device bit for bit with a sort of all elements. Also
// tests their digits and their plan.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "comm/base/error.h"
#include "compression/kernels/top_k_cuda.h"
#include "compression/kernels/top_k_selector.h"
#include "tests/compression/top_k_cases.h"
#include "tests/support/cuda_emulator/device.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

constexpr std::uint32_t kSeed = 23;

struct alignas(16) Quad {
  float values[4];
};

std::vector<Quad> aligned(const std::vector<float>& values) {
  std::vector<Quad> quads(values.size() / 4 + 1);
  std::memcpy(quads.data(), values.data(), values.size() * sizeof(float));
  return quads;
}

test::TopKAnswer on_emulator(const test::TopKCase& input, std::size_t k) {
  const std::size_t count = input.residual.size();
  std::vector<Quad> residual = aligned(input.residual);
  const std::vector<Quad> gradient = aligned(input.gradient);
  std::vector<Quad> workspace(top_k_workspace_bytes(count) / sizeof(Quad) + 1);
  std::memset(workspace.data(), 0xff, workspace.size() * sizeof(Quad));
  test::TopKAnswer answer{.sums = std::vector<float>(count),
                          .indices = std::vector<std::uint32_t>(k),
                          .values = std::vector<float>(k)};
  launch_top_k({.residual = residual[0].values,
                .gradient = gradient[0].values,
                .count = count,
                .k = k,
                .indices = answer.indices.data(),
                .values = answer.values.data()},
               std::as_writable_bytes(std::span(workspace)), nullptr);
  std::memcpy(answer.sums.data(), residual.data(), count * sizeof(float));
  return answer;
}

// Sorts all elements. The sums remain in the residual.
test::TopKAnswer by_sorting(const test::TopKCase& input, std::size_t k) {
  test::TopKAnswer answer = test::top_k_by_sorting(input, 1.0f, k);
  for (const std::uint32_t i : answer.indices) answer.sums[i] = 0.0f;
  return answer;
}

void expect_sorted(const test::TopKCase& input, std::size_t k, std::uint32_t seed,
                   std::size_t resident_blocks) {
  SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " +
               std::to_string(input.residual.size()) + ", seed " + std::to_string(seed) + ", " +
               std::to_string(resident_blocks) + " blocks");
  emulator::Device device({.seed = seed, .resident_blocks = resident_blocks});
  test::expect_equal(on_emulator(input, k), by_sorting(input, k));
}

TEST(EmulatedTopK, EqualsSortingForEveryKindOfNumber) {
  std::uint32_t seed = kSeed;
  // With more than a tile, the emulator is slow under sanitizers.
  const std::vector<std::size_t> counts = test::kSanitized
                                              ? std::vector<std::size_t>{1, 3, 7, 2049}
                                              : std::vector<std::size_t>{1, 3, 7, 2048, 2049};
  for (const std::size_t count : counts) {
    for (const test::TopKCase& input : test::top_k_cases(count, kSeed)) {
      for (const std::size_t k : test::top_k_ks(count)) {
        ++seed;
        if (test::kSanitized && count > 7 && seed % 3 != 0) continue;
        expect_sorted(input, k, seed, 1 + seed % 4);
      }
    }
  }
}

// Grids have one block whose warps process several sections, and several blocks. Lists overflow.
TEST(EmulatedTopK, EqualsSortingOverManySectionsAndInEveryGrid) {
  constexpr std::size_t kCount = 24 * TopKPlan::kSmallestSection + 777;
  const std::vector<test::TopKCase> cases = test::top_k_cases(kCount, kSeed);
  for (std::size_t i = test::kSanitized ? 1 : 0; i < cases.size(); i += test::kSanitized ? 2 : 1) {
    if (!test::kSanitized) expect_sorted(cases[i], kCount / 100, kSeed, 1);
    expect_sorted(cases[i], kCount / 100, kSeed, 4);
  }
}

TEST(EmulatedTopK, EveryOrderOfThreadsAndBlocksGivesTheSameBits) {
  const auto cases = test::top_k_cases(3 * TopKPlan::kSmallestSection + 1, kSeed);
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    expect_sorted(cases[seed % cases.size()], 500, seed, 1 + seed % 5);
  }
}

TEST(EmulatedTopK, RefusesWhatItCannotDo) {
  emulator::Device device({.seed = kSeed});
  std::vector<Quad> memory(1 << 12);
  const std::size_t bytes = top_k_workspace_bytes(8);
  const auto launch = [&](const TopK& task, std::size_t workspace) {
    launch_top_k(task, std::as_writable_bytes(std::span(memory)).first(workspace), nullptr);
  };
  float* const values = memory[0].values;
  EXPECT_THROW(launch({.residual = values, .gradient = values, .count = 8, .k = 9}, bytes),
               UsageError);
  EXPECT_THROW(launch({.residual = values, .gradient = values, .count = 8, .k = 1}, bytes - 1),
               UsageError);
  EXPECT_THROW(launch({.residual = values + 1, .gradient = values, .count = 4, .k = 1}, bytes),
               UsageError);
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

TEST(RadixSelectTest, FindsTheBinOfEveryElement) {
  const std::uint32_t counts[] = {3, 0, 2, 1, 0};
  const std::uint32_t bin_of[] = {3, 2, 2, 0, 0, 0};  // from the top
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
