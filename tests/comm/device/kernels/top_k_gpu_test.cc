// Compares top-k, codes and error feedback on a GPU, bit by bit, with those on the processor.

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/top_k.h"
#include "compression/error_feedback.h"
#include "compression/kernels/top_k_selector.h"
#include "tests/comm/device/kernels/code_cases.h"
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

TEST_F(TopKGpuTest, CodesEqualTheReference) {
  std::mt19937 random(23);
  for (const codes::Kind kind : test::kCodeKinds) {
    const test::CodeCase input = test::any_code_case(random, kind);
    const DeviceMemory values = upload(std::as_bytes(std::span(input.values)));
    const DeviceMemory blocks = upload(std::as_bytes(std::span(input.blocks)));
    const DeviceMemory flag = upload(std::vector<std::byte>(4));
    const DeviceMemory out = upload(std::vector<std::byte>(input.bytes));
    Quantisation task{.kind = kind,
                      .threshold = 0.3f,
                      .seed = 7,
                      .values = reinterpret_cast<float*>(values.data()),
                      .out = reinterpret_cast<std::uint8_t*>(out.data()),
                      .blocks = reinterpret_cast<const CodedBlock*>(blocks.data()),
                      .block_count = input.blocks.size(),
                      .non_finite = reinterpret_cast<const std::uint32_t*>(flag.data())};
    device->kernels().quantise(*stream, task);
    std::vector<float> expected = input.values;
    std::vector<std::uint8_t> expected_codes(input.bytes);
    const std::uint32_t finite = 0;
    task.values = expected.data();
    task.out = expected_codes.data();
    task.blocks = input.blocks.data();
    task.non_finite = &finite;
    quantise_on_host(task);
    EXPECT_TRUE(
        std::ranges::equal(download(out, out.bytes()), std::as_bytes(std::span(expected_codes))));
    EXPECT_TRUE(
        std::ranges::equal(download(values, values.bytes()), std::as_bytes(std::span(expected))));
  }
}

// Several steps, of which one is discarded, with a gradient at every alignment.
TEST_F(TopKGpuTest, ErrorFeedbackHasTheBitsOfHostMemory) {
  constexpr std::size_t kCount = 100003, kPairs = 1000;
  const std::vector<FeedbackTensor> tensors = {{.name = "a", .count = kCount}};
  ErrorFeedback host(tensors, MomentumCorrection{});
  ErrorFeedback there(tensors, MomentumCorrection{}, std::make_shared<FeedbackStream>(*device),
                      kPairs);
  const DeviceMemory selected = device->allocate((2 * kPairs + 1) * 4, MemoryKind::kDevice);
  auto* const words = reinterpret_cast<std::uint32_t*>(selected.data());
  for (std::uint32_t step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    std::vector<float> gradient = test::top_k_cases(kCount, step)[0].gradient;
    const bool is_bad = step == 2;
    if (is_bad) gradient[77] = std::numeric_limits<float>::infinity();
    std::vector<float> shifted(step % 4);
    shifted.insert(shifted.end(), gradient.begin(), gradient.end());
    const DeviceMemory uploaded = upload(std::as_bytes(std::span(shifted)));
    overwrite(selected, std::vector<std::byte>(4));  // the flag
    there.fold(*stream, 0, {reinterpret_cast<const float*>(uploaded.data()) + step % 4, kCount},
               kPairs,
               {.indices = words + 1,
                .values = reinterpret_cast<float*>(words + 1 + kPairs),
                .non_finite = words});
    Pairs pairs;
    const SelectionReport report = host.fold(0, gradient, 1.0f, kPairs, pairs);
    EXPECT_EQ(report.finite, !is_bad);
    std::vector<std::uint32_t> expected = {is_bad ? 1u : 0u};
    expected.insert(expected.end(), pairs.indices.begin(), pairs.indices.end());
    for (const float value : pairs.values) expected.push_back(std::bit_cast<std::uint32_t>(value));
    const std::vector<std::byte> bytes = download(selected, selected.bytes());
    EXPECT_TRUE(std::ranges::equal(bytes, std::as_bytes(std::span(expected))));
    if (is_bad) {
      host.abort(0), there.abort(0);
    } else {
      pairs.indices.resize(kPairs / 2), pairs.values.resize(kPairs / 2);
      host.commit(0, pairs), there.commit(0, pairs);
    }
    EXPECT_EQ(there.save(), host.save());
  }
  const FeedbackState state = host.save();
  there.drop_residual(0);
  EXPECT_EQ(there.residual_norm(0), 0.0);
  there.load(state);
  EXPECT_EQ(there.residual_norm(0), host.residual_norm(0));
}

}  // namespace
}  // namespace kolo
