// Compares the kernels of error feedback on the emulated device bit for bit with a sort of all
// elements and with their references. Also tests their digits and their plan.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/base/error.h"
#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/top_k.h"
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
  const std::vector<Quad> residual = aligned(input.residual);
  const std::vector<Quad> gradient = aligned(input.gradient);
  std::vector<Quad> sums(residual.size());
  std::vector<Quad> workspace(top_k_workspace_bytes(count) / sizeof(Quad) + 1);
  std::memset(workspace.data(), 0xff, workspace.size() * sizeof(Quad));
  test::TopKAnswer answer{.sums = std::vector<float>(count),
                          .indices = std::vector<std::uint32_t>(k),
                          .values = std::vector<float>(k)};
  launch_top_k({.residual = residual[0].values,
                .gradient = gradient[0].values,
                .sums = sums[0].values,
                .count = count,
                .k = k,
                .indices = answer.indices.data(),
                .values = answer.values.data()},
               std::as_writable_bytes(std::span(workspace)), nullptr);
  std::memcpy(answer.sums.data(), sums.data(), count * sizeof(float));
  return answer;
}

void expect_sorted(const test::TopKCase& input, std::size_t k, std::uint32_t seed,
                   std::size_t resident_blocks) {
  SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " +
               std::to_string(input.residual.size()) + ", seed " + std::to_string(seed) + ", " +
               std::to_string(resident_blocks) + " blocks");
  emulator::Device device({.seed = seed, .resident_blocks = resident_blocks});
  test::expect_equal(on_emulator(input, k), test::top_k_by_sorting(input, 1.0f, k));
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

/// The results of a task with momentum.
struct Folded {
  std::vector<float> sums, velocity;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::uint32_t non_finite = 0;
};

/// Runs a task by `run`. The gradient begins `shift` floats after a multiple of 16 bytes.
template <typename Run>
Folded fold(const test::TopKCase& input, const std::vector<float>& velocity, std::size_t k,
            std::size_t shift, const Run& run) {
  const std::size_t count = input.residual.size();
  std::vector<float> shifted(shift);
  shifted.insert(shifted.end(), input.gradient.begin(), input.gradient.end());
  const std::vector<Quad> residual = aligned(input.residual), gradient = aligned(shifted);
  const std::vector<Quad> before = aligned(velocity);
  std::vector<Quad> sums(residual.size()), after(residual.size());
  std::vector<Quad> workspace(top_k_workspace_bytes(count) / sizeof(Quad) + 1);
  Folded folded{.sums = std::vector<float>(count),
                .velocity = std::vector<float>(count),
                .indices = std::vector<std::uint32_t>(k),
                .values = std::vector<float>(k)};
  run(TopK{.residual = residual[0].values,
           .gradient = gradient[0].values + shift,
           .sums = sums[0].values,
           .scale = 0.3f,
           .velocity = before[0].values,
           .next_velocity = after[0].values,
           .momentum = 0.9f,
           .count = count,
           .k = k,
           .indices = folded.indices.data(),
           .values = folded.values.data(),
           .non_finite = &folded.non_finite},
      std::as_writable_bytes(std::span(workspace)));
  std::memcpy(folded.sums.data(), sums.data(), count * sizeof(float));
  std::memcpy(folded.velocity.data(), after.data(), count * sizeof(float));
  return folded;
}

void expect_equal(const Folded& actual, const Folded& expected) {
  EXPECT_EQ(test::bits_of(actual.sums), test::bits_of(expected.sums));
  EXPECT_EQ(test::bits_of(actual.velocity), test::bits_of(expected.velocity));
  EXPECT_EQ(actual.indices, expected.indices);
  EXPECT_EQ(test::bits_of(actual.values), test::bits_of(expected.values));
  EXPECT_EQ(actual.non_finite, expected.non_finite);
}

// The reference and the processor's selector, which error feedback in host memory uses, agree too.
TEST(EmulatedTopK, FoldsMomentumAndScaleAsTheReferenceAndTheProcessor) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1027}}) {
    for (const test::TopKCase& input : test::top_k_cases(count, kSeed)) {
      SCOPED_TRACE(input.name + ", " + std::to_string(count));
      const std::vector<float>& velocity = input.gradient;
      const std::size_t k = (count + 9) / 10;
      const Folded expected = fold(input, velocity, k, 0, [](const TopK& task, auto workspace) {
        check_top_k(task, workspace);
        top_k_on_host(task);
      });
      for (const std::size_t shift : {0u, 1u, 3u}) {
        emulator::Device device({.seed = kSeed, .resident_blocks = 2});
        expect_equal(
            fold(input, velocity, k, shift,
                 [](const TopK& task, auto workspace) { launch_top_k(task, workspace, nullptr); }),
            expected);
      }
      expect_equal(fold(input, velocity, k, 0,
                        [](const TopK& task, auto) {
                          SelectionHint hint;
                          const SelectionReport report =
                              TopKSelector().select({.residual = task.residual,
                                                     .gradient = task.gradient,
                                                     .sums = task.sums,
                                                     .scale = task.scale,
                                                     .momentum = {.before = task.velocity,
                                                                  .after = task.next_velocity,
                                                                  .factor = task.momentum},
                                                     .count = task.count,
                                                     .k = task.k,
                                                     .indices = task.indices,
                                                     .values = task.values},
                                                    hint);
                          if (!report.finite) *task.non_finite = 1;
                        }),
                   expected);
    }
  }
}

// A dense step folds in place, wherever the elements begin.
TEST(EmulatedTopK, FoldsInPlaceWithoutSelecting) {
  for (const std::size_t shift : {0u, 1u, 2u}) {
    const test::TopKCase input = test::top_k_cases(1027, kSeed)[0];
    const std::vector<Quad> residual = aligned(input.residual);
    std::vector<Quad> gradient(300);
    float* const elements = gradient[0].values + shift;
    std::ranges::copy(input.gradient, elements);
    emulator::Device device({.seed = kSeed});
    launch_top_k({.residual = residual[0].values,
                  .gradient = elements,
                  .sums = elements,
                  .count = input.gradient.size()},
                 {}, nullptr);
    const std::vector<float> sums(elements, elements + input.gradient.size());
    EXPECT_EQ(test::bits_of(sums), test::bits_of(test::top_k_by_sorting(input, 1.0f, 0).sums));
  }
}

TEST(EmulatedPairs, AreSubtractedAndTheirVelocitiesBecomeZero) {
  constexpr std::size_t kCount = 1000;
  std::vector<float> residual(kCount), velocity(kCount, 2.0f), values;
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < kCount; ++i) residual[i] = static_cast<float>(i) * 0.1f;
  for (std::size_t i = 1; i < kCount; i += 3) {
    indices.push_back(static_cast<std::int64_t>(i));
    values.push_back(static_cast<float>(i) * 0.07f);
  }
  std::vector<float> expected = residual, expected_velocity = velocity;
  subtract_pairs_on_host(indices, values.data(), expected.data(), expected_velocity.data());
  EXPECT_EQ(expected[4], residual[4] - values[1]);
  EXPECT_EQ(expected[5], residual[5]);
  EXPECT_EQ(expected_velocity[4], 0.0f);
  EXPECT_EQ(expected_velocity[5], 2.0f);
  emulator::Device device({.seed = kSeed, .resident_blocks = 2});
  std::vector<float> alone = residual;
  launch_subtract_pairs(indices, values.data(), alone.data(), nullptr, nullptr);
  launch_subtract_pairs(indices, values.data(), residual.data(), velocity.data(), nullptr);
  EXPECT_EQ(test::bits_of(residual), test::bits_of(expected));
  EXPECT_EQ(test::bits_of(alone), test::bits_of(expected));
  EXPECT_EQ(test::bits_of(velocity), test::bits_of(expected_velocity));
}

TEST(EmulatedPairs, OneNumberThatIsNotFiniteRaisesTheFlag) {
  for (const std::size_t bad : {0u, 777u, 4999u, 5000u}) {  // the last is none
    std::vector<float> numbers(5000, std::numeric_limits<float>::max());
    if (bad < numbers.size()) numbers[bad] = -std::numeric_limits<float>::infinity();
    std::uint32_t flag = 0, reference = 0;
    emulator::Device device({.seed = kSeed, .resident_blocks = 2});
    launch_find_non_finite(DType::kFloat32, numbers.data(), numbers.size(), &flag, nullptr);
    find_non_finite_on_host(DType::kFloat32, numbers.data(), numbers.size(), &reference);
    EXPECT_EQ(flag, bad < numbers.size() ? 1u : 0u);
    EXPECT_EQ(reference, flag);
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
  const TopK good{.residual = values, .gradient = values + 1, .sums = values, .count = 4, .k = 0};
  TopK task = good;
  task.k = 5;
  EXPECT_THROW(launch(task, bytes), UsageError);
  task.k = 1;
  EXPECT_THROW(launch(task, bytes - 1), UsageError);
  task.sums = values + 1;
  EXPECT_THROW(launch(task, bytes), UsageError);
  task = good;
  task.residual = values + 1;
  EXPECT_THROW(launch(task, bytes), UsageError);
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
