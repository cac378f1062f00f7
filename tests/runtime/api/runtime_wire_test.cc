// Tests all-reduces and reduce-scatters that send elements in 16 bits.

#include <gmock/gmock.h>

#include "comm/base/half.h"
#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

constexpr Reduction kSumAsBfloat16{ReduceOp::kSum, {}, DType::kBFloat16};

float rounded(float value) { return to_float(to_bfloat16(value)); }

/// Returns the values of a rank. They need more bits than bfloat16 has.
std::vector<float> contribution(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 1.0f + static_cast<float>(i % 1000) / 997.0f + static_cast<float>(rank) / 3.0f;
  }
  return values;
}

/// Returns sums in which each contribution is rounded once, and then the float32 sum in rank order.
std::vector<float> expected_sums(int ranks, std::size_t count) {
  std::vector<float> sums(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = contribution(rank, count);
    for (std::size_t i = 0; i < count; ++i) sums[i] += rounded(values[i]);
  }
  for (float& sum : sums) sum = rounded(sum);
  return sums;
}

TEST(RuntimeWire, AnAllReduceRoundsContributionsAndResultOnce) {
  constexpr int kRanks = 3;
  RuntimeJob job(kRanks, test_options());
  job.run([](Runtime& runtime) {
    // The second use of a plan has different buffers.
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1000}}) {
      const std::vector<float> expected = expected_sums(kRanks, count);
      std::vector<float> data = contribution(runtime.rank(), count);
      runtime.all_reduce("", view(data), kSumAsBfloat16).wait();
      require(data == expected, "in place");
      const std::vector<float> input = contribution(runtime.rank(), count + 1);
      std::vector<float> result(count + 1);
      const std::span<float> without_last(result.data(), count);
      runtime.all_reduce("", {std::span(input).first(count), without_last}, kSumAsBfloat16).wait();
      require(std::vector<float>(result.begin(), result.end() - 1) == expected, "out of place");
    }
    std::vector<float> first = contribution(runtime.rank(), 7);
    std::vector<float> second = contribution(runtime.rank(), 300);
    const Tensor both[] = {first, second};
    runtime.all_reduce("both", both, kSumAsBfloat16).wait();
    require(first == expected_sums(kRanks, 7) && second == expected_sums(kRanks, 300), "grouped");
    std::vector<double> wide(5, 1.0 + 1.0 / 512);  // rounded to 1 in 16 bits
    runtime
        .all_reduce("wide", {wide.data(), wide.size(), DType::kFloat64},
                    {ReduceOp::kAverage, {}, DType::kBFloat16})
        .wait();
    require(wide == std::vector<double>(5, 1.0), "an average of float64");
  });
}

TEST(RuntimeWire, AReduceScatterHasTheBitsOfAnAllReduce) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCounts[] = {4, 0, 700};
  constexpr std::size_t kBegins[] = {0, 4, 4}, kAll = 704;
  RuntimeJob job(kRanks, test_options());
  job.run([&](Runtime& runtime) {
    const auto rank = static_cast<std::size_t>(runtime.rank());
    const auto part = [&](const std::vector<float>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kBegins[rank]);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(kCounts[rank]));
    };
    const std::vector<float> expected = part(expected_sums(kRanks, kAll));
    const std::vector<float> own = contribution(runtime.rank(), kAll);
    for (int use = 0; use < 2; ++use) {
      std::vector<float> result(kCounts[rank] + 1);
      const std::span<float> without_last(result.data(), kCounts[rank]);
      runtime.reduce_scatter("out of place", {own, without_last, kCounts}, kSumAsBfloat16).wait();
      result.pop_back();
      require(result == expected, "out of place");
      std::vector<float> all = own;
      runtime.reduce_scatter("in place", {all, kCounts}, kSumAsBfloat16).wait();
      require(part(all) == expected, "in place");
      std::vector<float> others = own;
      std::copy(expected.begin(), expected.end(),
                others.begin() + static_cast<std::ptrdiff_t>(kBegins[rank]));
      require(all == others, "the parts of other ranks stay as they are");
    }
    std::vector<float> first(2), second(100);
    const std::vector<float> of_first = contribution(runtime.rank(), kRanks * 2);
    const std::vector<float> of_second = contribution(runtime.rank(), kRanks * 100);
    const Tensor both[] = {{of_first, first}, {of_second, second}};
    runtime.reduce_scatter("both", both, kSumAsBfloat16).wait();
    const std::vector<float> of_all = expected_sums(kRanks, kRanks * 100);
    require(std::equal(first.begin(), first.end(), of_all.begin() + runtime.rank() * 2) &&
                std::equal(second.begin(), second.end(), of_all.begin() + runtime.rank() * 100),
            "grouped");
  });
}

TEST(RuntimeWire, IsRefusedWhereNothingCasts) {
  RuntimeJob job(1, test_options());
  job.run([](Runtime& runtime) {
    std::vector<float> data(4);
    const Reduction scaled{ReduceOp::kSum, {.before = 2}, DType::kBFloat16};
    const Reduction as_float16{ReduceOp::kSum, {}, DType::kFloat16};
    EXPECT_THAT(error_of([&] { runtime.all_reduce("x", view(data), scaled).wait(); }),
                HasSubstr("elements that are cast are not scaled as well"));
    EXPECT_THAT(error_of([&] { runtime.all_reduce("x", view(data), as_float16).wait(); }),
                HasSubstr("float32 does not travel as float16"));
    EXPECT_THAT(error_of([&] { runtime.reduce("x", view(data), 0, kSumAsBfloat16).wait(); }),
                HasSubstr("only all-reduce and reduce-scatter cast"));
  });
}

}  // namespace
}  // namespace kolo::test
