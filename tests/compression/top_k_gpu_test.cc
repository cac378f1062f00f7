// Compares top-k on a GPU, bit by bit, with top-k on the processor.

#include <vector>

#include "comm/base/error.h"
#include "compression/kernels/top_k_cuda.h"
#include "compression/kernels/top_k_selector.h"
#include "tests/compression/top_k_cases.h"
#include "tests/support/gpu_test.h"

namespace kolo {
namespace {

class TopKGpuTest : public test::GpuTest {
 protected:
  struct Result {
    std::vector<std::byte> residual, indices, values;
    bool operator==(const Result&) const = default;
  };

  Result run(const test::TopKCase& input, std::size_t k) {
    const std::size_t count = input.residual.size();
    const DeviceMemory residual = upload(std::as_bytes(std::span(input.residual)));
    const DeviceMemory gradient = upload(std::as_bytes(std::span(input.gradient)));
    const DeviceMemory indices = device->allocate(k * 4 + 4, MemoryKind::kDevice);
    const DeviceMemory values = device->allocate(k * 4 + 4, MemoryKind::kDevice);
    const DeviceMemory workspace =
        device->allocate(top_k_workspace_bytes(count), MemoryKind::kDevice);
    launch_top_k({.residual = reinterpret_cast<float*>(residual.data()),
                  .gradient = reinterpret_cast<const float*>(gradient.data()),
                  .count = count,
                  .k = k,
                  .indices = reinterpret_cast<std::uint32_t*>(indices.data()),
                  .values = reinterpret_cast<float*>(values.data())},
                 {workspace.data(), workspace.bytes()}, stream->native());
    return {download(residual, count * 4), download(indices, k * 4), download(values, k * 4)};
  }

  static Result on_processor(const test::TopKCase& input, std::size_t k) {
    std::vector<float> residual = input.residual;
    std::vector<std::uint32_t> indices(k);
    std::vector<float> values(k);
    SelectionHint hint;
    TopKSelector().select({.residual = residual.data(),
                           .gradient = input.gradient.data(),
                           .sums = residual.data(),
                           .count = residual.size(),
                           .k = k,
                           .indices = indices.data(),
                           .values = values.data()},
                          hint);
    for (const std::uint32_t i : indices) residual[i] = 0.0f;
    const auto bytes = [](const auto& vector) {
      const auto span = std::as_bytes(std::span(vector));
      return std::vector<std::byte>(span.begin(), span.end());
    };
    return {bytes(residual), bytes(indices), bytes(values)};
  }
};

TEST_F(TopKGpuTest, EqualsTheProcessorForEveryKindOfNumberInEveryRun) {
  constexpr std::uint32_t kSeed = 23;
  for (const std::size_t count : {1u, 7u, 2048u, 2049u, 100003u, 3000000u}) {
    for (const test::TopKCase& input : test::top_k_cases(count, kSeed)) {
      for (const std::size_t k : test::top_k_ks(count)) {
        SCOPED_TRACE(input.name + ", " + std::to_string(k) + " of " + std::to_string(count) +
                     ", seed " + std::to_string(kSeed));
        const Result first = run(input, k);
        ASSERT_TRUE(first == on_processor(input, k));
        ASSERT_TRUE(first == run(input, k));
      }
    }
  }
}

TEST_F(TopKGpuTest, RefusesWhatItCannotDo) {
  const DeviceMemory memory = device->allocate(1 << 20, MemoryKind::kDevice);
  const std::span<std::byte> workspace(memory.data(), memory.bytes());
  auto* const values = reinterpret_cast<float*>(memory.data());
  const auto launch = [&](const TopK& task, std::size_t bytes) {
    launch_top_k(task, workspace.first(bytes), stream->native());
  };
  const std::size_t bytes = top_k_workspace_bytes(8);
  EXPECT_THROW(launch({.residual = values, .gradient = values, .count = 8, .k = 9}, bytes),
               UsageError);
  EXPECT_THROW(launch({.residual = values, .gradient = values, .count = 8, .k = 1}, bytes - 1),
               UsageError);
  EXPECT_THROW(launch({.residual = values + 1, .gradient = values, .count = 4, .k = 1}, bytes),
               UsageError);
}

}  // namespace
}  // namespace kolo
