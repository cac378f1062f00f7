// Top-k's kernels on the emulated device, bit for bit as top-k on the processor.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "comm/base/error.h"
#include "compression/kernels/top_k_cuda.h"
#include "compression/kernels/top_k_workspace.h"
#include "tests/compression/top_k_cases.h"
#include "tests/support/cuda_emulator/device.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

constexpr std::uint32_t kSeed = 23;

struct alignas(16) Quad {
  float values[4];
};

struct Result {
  std::vector<std::uint32_t> residual, indices, values;  // bits
  bool operator==(const Result&) const = default;
};

std::vector<Quad> aligned(const std::vector<float>& values) {
  std::vector<Quad> quads(values.size() / 4 + 1);
  std::memcpy(quads.data(), values.data(), values.size() * sizeof(float));
  return quads;
}

Result on_emulator(const test::TopKCase& input, std::size_t k) {
  const std::size_t count = input.residual.size();
  std::vector<Quad> residual = aligned(input.residual);
  const std::vector<Quad> gradient = aligned(input.gradient);
  std::vector<Quad> workspace(top_k_workspace_bytes(count) / sizeof(Quad) + 1);
  std::memset(workspace.data(), 0xff, workspace.size() * sizeof(Quad));
  std::vector<std::uint32_t> indices(k);
  std::vector<float> values(k);
  launch_top_k({.residual = residual[0].values,
                .gradient = gradient[0].values,
                .count = count,
                .k = k,
                .indices = indices.data(),
                .values = values.data()},
               std::as_writable_bytes(std::span(workspace)), nullptr);
  std::vector<float> left(count);
  std::memcpy(left.data(), residual.data(), count * sizeof(float));
  return {test::bits_of(left), indices, test::bits_of(values)};
}

Result on_processor(const test::TopKCase& input, std::size_t k) {
  std::vector<float> residual = input.residual;
  std::vector<std::uint32_t> indices(k);
  std::vector<float> values(k);
  top_k({.residual = residual.data(),
         .gradient = input.gradient.data(),
         .count = residual.size(),
         .k = k,
         .indices = indices.data(),
         .values = values.data()});
  return {test::bits_of(residual), indices, test::bits_of(values)};
}

void expect_equal(const test::TopKCase& input, std::size_t k, std::uint32_t seed,
                  std::size_t resident_blocks) {
  SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " +
               std::to_string(input.residual.size()) + ", seed " + std::to_string(seed) + ", " +
               std::to_string(resident_blocks) + " blocks");
  emulator::Device device({.seed = seed, .resident_blocks = resident_blocks});
  ASSERT_TRUE(on_emulator(input, k) == on_processor(input, k));
}

TEST(EmulatedTopK, EqualsTheProcessorForEveryKindOfNumber) {
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
        expect_equal(input, k, seed, 1 + seed % 4);
      }
    }
  }
}

// One block whose warps take several sections each, and several blocks; lists that overflow.
TEST(EmulatedTopK, EqualsTheProcessorOverManySectionsAndInEveryGrid) {
  constexpr std::size_t kCount = 24 * TopKPlan::kSmallestSection + 777;
  const std::vector<test::TopKCase> cases = test::top_k_cases(kCount, kSeed);
  for (std::size_t i = test::kSanitized ? 1 : 0; i < cases.size(); i += test::kSanitized ? 2 : 1) {
    if (!test::kSanitized) expect_equal(cases[i], kCount / 100, kSeed, 1);
    expect_equal(cases[i], kCount / 100, kSeed, 4);
  }
}

TEST(EmulatedTopK, EveryOrderOfThreadsAndBlocksGivesTheSameBits) {
  const auto cases = test::top_k_cases(3 * TopKPlan::kSmallestSection + 1, kSeed);
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    expect_equal(cases[seed % cases.size()], 500, seed, 1 + seed % 5);
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

}  // namespace
}  // namespace kolo
