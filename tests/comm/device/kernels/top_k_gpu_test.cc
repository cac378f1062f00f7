// Compares top-k on a GPU, bit by bit, with top-k on the processor.

#include <vector>

#include "comm/device/kernels/top_k.h"
#include "compression/kernels/top_k_selector.h"
#include "tests/compression/top_k_cases.h"
#include "tests/support/gpu_test.h"

namespace kolo {
namespace {

class TopKGpuTest : public test::GpuTest {
 protected:
  struct Result {
    std::vector<std::byte> sums, indices, values;
    bool operator==(const Result&) const = default;
  };

  Result run(const test::TopKCase& input, std::size_t k) {
    const std::size_t count = input.residual.size();
    const DeviceMemory residual = upload(std::as_bytes(std::span(input.residual)));
    const DeviceMemory gradient = upload(std::as_bytes(std::span(input.gradient)));
    const DeviceMemory sums = device->allocate(count * 4, MemoryKind::kDevice);
    const DeviceMemory indices = device->allocate(k * 4 + 4, MemoryKind::kDevice);
    const DeviceMemory values = device->allocate(k * 4 + 4, MemoryKind::kDevice);
    const DeviceMemory workspace =
        device->allocate(top_k_workspace_bytes(count), MemoryKind::kDevice);
    device->kernels().top_k(*stream,
                            {.residual = reinterpret_cast<float*>(residual.data()),
                             .gradient = reinterpret_cast<const float*>(gradient.data()),
                             .sums = reinterpret_cast<float*>(sums.data()),
                             .count = count,
                             .k = k,
                             .indices = reinterpret_cast<std::uint32_t*>(indices.data()),
                             .values = reinterpret_cast<float*>(values.data())},
                            {workspace.data(), workspace.bytes()});
    return {download(sums, count * 4), download(indices, k * 4), download(values, k * 4)};
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

}  // namespace
}  // namespace kolo
