// Examples of the bits that the reference kernels define.

#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/base/half.h"
#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

template <typename T>
std::vector<T> reduced(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs,
                       double scale = 1.0) {
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<T> result(inputs[0].size());
  reduce(dtype, op, result.data(), sources, result.size(), scale);
  return result;
}

template <typename To, typename From>
std::vector<To> converted(DType to, DType from, const std::vector<From>& input,
                          double scale = 1.0) {
  std::vector<To> result(input.size());
  convert(to, result.data(), from, input.data(), input.size(), scale);
  return result;
}

TEST(ReduceSemantics, HalfSumsAreRoundedOnce) {
  // 2048 + 1 is rounded to 2048 in float16, so a chain of 16-bit sums would lose both ones.
  const Float16 big = to_float16(2048.0f);
  const Float16 one = to_float16(1.0f);
  const auto sum = reduced<Float16>(DType::kFloat16, ReduceOp::kSum, {{big}, {one}, {one}});
  EXPECT_EQ(to_float(sum[0]), 2050.0f);
  const auto overflow = reduced<Float16>(DType::kFloat16, ReduceOp::kSum,
                                         {{Float16{0x7bff}}, {Float16{0x7bff}}}, 0.5);
  EXPECT_EQ(overflow[0].bits, 0x7bff) << "the sum must not overflow before it is scaled";
}

TEST(ReduceSemantics, SumsOnAWireStayFiniteAndInfinitiesInfinite) {
  const std::vector<Float16> a = {{0x7bff}, {0xfbff}, {0x7c00}, {0x7c00}, {0x7bff}};
  const std::vector<Float16> b = {{0x7bff}, {0xfbff}, {0x3c00}, {0xfc00}, {0x4c00}};
  const std::vector<const void*> sources = {a.data(), b.data()};
  std::vector<Float16> sum(a.size());
  reduce(DType::kFloat16, ReduceOp::kSum, sum.data(), sources, sum.size(), 1.0, Overflow::kLargest);
  EXPECT_THAT(sum, testing::ElementsAre(Float16{0x7bff}, Float16{0xfbff}, Float16{0x7c00},
                                        Float16{0x7e00}, Float16{0x7bff}));
  reduce(DType::kFloat16, ReduceOp::kSum, sum.data(), sources, sum.size(), 1.0);
  EXPECT_THAT(sum, testing::ElementsAre(Float16{0x7c00}, Float16{0xfc00}, Float16{0x7c00},
                                        Float16{0x7e00}, Float16{0x7c00}));
  const BFloat16 brain{0x7f7f};
  const std::vector<const void*> brains = {&brain, &brain};
  BFloat16 product{};
  reduce(DType::kBFloat16, ReduceOp::kSum, &product, brains, 1, 0.5, Overflow::kLargest);
  EXPECT_EQ(product.bits, 0x7f80) << "the sum is infinite in float32 already";
}

TEST(ReduceSemantics, SumsGoInOrderOfSources) {
  const auto sum = reduced<float>(DType::kFloat32, ReduceOp::kSum, {{1e30f}, {-1e30f}, {1.0f}});
  EXPECT_EQ(sum[0], 1.0f);
  const auto other = reduced<float>(DType::kFloat32, ReduceOp::kSum, {{1.0f}, {1e30f}, {-1e30f}});
  EXPECT_EQ(other[0], 0.0f);
}

TEST(ReduceSemantics, MultiplyAndAddAreNotFused) {
  const float a = 1.0f + 0x1p-12f;
  const auto product = reduced<float>(DType::kFloat32, ReduceOp::kSum, {{a}, {a}}, 0.3);
  const float factor = static_cast<float>(0.3);
  EXPECT_EQ(product[0], (a + a) * factor);
}

TEST(ReduceSemantics, IntegersWrapAndAveragesAreCutTowardZero) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  EXPECT_THAT(reduced<std::int32_t>(DType::kInt32, ReduceOp::kSum, {{kMax, -3}, {1, -4}}),
              testing::ElementsAre(std::numeric_limits<std::int32_t>::min(), -7));
  EXPECT_THAT(
      reduced<std::int32_t>(DType::kInt32, ReduceOp::kAverage, {{5, -5}, {2, -2}}, 1.0 / 2.0),
      testing::ElementsAre(3, -3));
  EXPECT_THAT(reduced<std::uint8_t>(DType::kUInt8, ReduceOp::kProd, {{200, 3}, {2, 4}}),
              testing::ElementsAre(144, 12));
}

// The product of 1.0 / n and a multiple of n may be just below the quotient.
TEST(ReduceSemantics, AveragesOfIntegersAreTheSumDivided) {
  for (int ranks = 1; ranks <= 300; ++ranks) {
    const std::vector<std::vector<std::int32_t>> equal(static_cast<std::size_t>(ranks),
                                                       {1, -7, 40'001});
    EXPECT_EQ(reduced(DType::kInt32, ReduceOp::kAverage, equal, 1.0 / ranks), equal[0])
        << ranks << " ranks";
  }
  constexpr std::int64_t kOdd = (std::int64_t{1} << 61) + 1;  // no double has this value
  EXPECT_THAT(reduced<std::int64_t>(DType::kInt64, ReduceOp::kAverage,
                                    {{kOdd, -kOdd, 5, -5}, {kOdd, -kOdd, 2, -2}}, 1.0 / 2),
              testing::ElementsAre(kOdd, -kOdd, 3, -3));
  EXPECT_THAT(reduced<std::int8_t>(DType::kInt8, ReduceOp::kAverage, {{100, -50}, {100, -51}}, 0.5),
              testing::ElementsAre(-28, -50))
      << "the sum wraps before it is divided";
  EXPECT_THAT(reduced<std::uint8_t>(DType::kUInt8, ReduceOp::kAverage, {{255, 200}}, 1.0 / 300),
              testing::ElementsAre(0, 0))
      << "more ranks than the dtype counts";
}

// If the sum is exact, the average of equal values is their value, although 49 * (1.0f / 49) < 1.
template <typename T, typename FromFloat>
void expect_equal_values_stay(DType dtype, FromFloat from_float) {
  for (int ranks = 1; ranks <= 300; ++ranks) {
    const std::vector<T> values = {from_float(1.0f), from_float(-0.3f), from_float(1e-5f),
                                   from_float(60000.0f), from_float(-0.0f)};
    const auto average =
        reduced<T>(dtype, ReduceOp::kAverage, std::vector(static_cast<std::size_t>(ranks), values),
                   1.0 / ranks);
    EXPECT_EQ(std::memcmp(average.data(), values.data(), values.size() * sizeof(T)), 0)
        << to_string(dtype) << ", " << ranks << " ranks";
  }
}

TEST(ReduceSemantics, AveragesOfEqualValuesAreThatValue) {
  expect_equal_values_stay<Float16>(DType::kFloat16, [](float value) { return to_float16(value); });
  expect_equal_values_stay<BFloat16>(DType::kBFloat16,
                                     [](float value) { return to_bfloat16(value); });
  // Values of 9 bits have enough zero bits for exact sums over 300 ranks.
  const auto few_bits = [](float value) { return to_float(to_bfloat16(value)); };
  expect_equal_values_stay<float>(DType::kFloat32, few_bits);
  expect_equal_values_stay<double>(DType::kFloat64,
                                   [](float value) { return static_cast<double>(value); });
}

// Averaging a scaled sum gives the same bits as scaling the average.
TEST(ReduceSemantics, PowersOfTwoAndAveragesCommute) {
  for (const float sum : {5.3f, 0.7f, 1e10f, 3e-20f}) {
    for (const double after : {0.25, 2.0, 8.0}) {
      const float average = reduced<float>(DType::kFloat32, ReduceOp::kSum, {{sum}}, 1.0 / 3)[0];
      EXPECT_EQ(reduced<float>(DType::kFloat32, ReduceOp::kSum, {{sum}}, 1.0 / 3 * after)[0],
                average * static_cast<float>(after));
    }
  }
}

TEST(ReduceSemantics, ScalesThatAreNoInverseMultiply) {
  for (const double scale : {0.0, -1.0 / 3, 0.3, 2.0, 3.0, 1e-30}) {
    const auto factor = static_cast<float>(scale);
    EXPECT_EQ(reduced<float>(DType::kFloat32, ReduceOp::kSum, {{5.3f}, {0.7f}}, scale)[0],
              (5.3f + 0.7f) * factor)
        << scale;
  }
  EXPECT_EQ(
      converted<float>(DType::kFloat32, DType::kFloat32, std::vector<float>{5.3f}, 1.0 / 3)[0],
      5.3f * static_cast<float>(1.0 / 3))
      << "a contribution";
}

TEST(ReduceSemantics, Int8WrapsAndKeepsItsSign) {
  const std::vector<std::vector<std::int8_t>> inputs = {{127, -128, 5}, {1, -1, -7}};
  const auto reduce_by = [&](ReduceOp op) {
    return reduced<std::int8_t>(DType::kInt8, op, inputs);
  };
  EXPECT_THAT(reduce_by(ReduceOp::kSum), testing::ElementsAre(-128, 127, -2));
  EXPECT_THAT(reduce_by(ReduceOp::kMin), testing::ElementsAre(1, -128, -7));
  EXPECT_THAT(reduce_by(ReduceOp::kMax), testing::ElementsAre(127, -1, 5));
}

TEST(ReduceSemantics, BitsAreCombinedOneByOne) {
  const std::vector<std::vector<std::int32_t>> inputs = {{0b1100, -1}, {0b1010, 7}, {0b1111, 5}};
  const auto reduce_by = [&](ReduceOp op) {
    return reduced<std::int32_t>(DType::kInt32, op, inputs);
  };
  EXPECT_THAT(reduce_by(ReduceOp::kBitAnd), testing::ElementsAre(0b1000, 5));
  EXPECT_THAT(reduce_by(ReduceOp::kBitOr), testing::ElementsAre(0b1111, -1));
  EXPECT_THAT(reduce_by(ReduceOp::kBitXor), testing::ElementsAre(0b1001, -1 ^ 7 ^ 5));
}

TEST(ReduceSemantics, MinimumAndMaximumOrderZerosAndKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> inputs = {{0.0f, -0.0f, nan, 1.0f, 2.0f},
                                                  {-0.0f, 0.0f, 1.0f, nan, -3.0f}};
  const auto lowest = reduced(DType::kFloat32, ReduceOp::kMin, inputs);
  const auto highest = reduced(DType::kFloat32, ReduceOp::kMax, inputs);
  for (const std::size_t zero : {0u, 1u}) {
    EXPECT_TRUE(std::signbit(lowest[zero]));
    EXPECT_FALSE(std::signbit(highest[zero]));
  }
  for (const std::size_t i : {2u, 3u}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(lowest[i]), 0x7fc00000u);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(highest[i]), 0x7fc00000u);
  }
  EXPECT_EQ(lowest[4], -3.0f);
  EXPECT_EQ(highest[4], 2.0f);
}

TEST(ReduceSemantics, NoSourceIsAUsageError) {
  float value = 0;
  EXPECT_THROW(reduce(DType::kFloat32, ReduceOp::kSum, &value, {}, 1, 1.0), UsageError);
  const void* const source = &value;
  EXPECT_THROW(reduce(DType::kFloat32, ReduceOp::kSum, std::span<void* const>(),
                      std::span(&source, 1), 1, 1.0),
               UsageError);
}

TEST(ConvertSemantics, FloatToIntegerTruncatesAndSaturates) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT((converted<std::int32_t, double>(DType::kInt32, DType::kFloat64,
                                               {1.9, -1.9, 1e10, -1e10, nan})),
              testing::ElementsAre(1, -1, 2147483647, -2147483648LL, 0));
  EXPECT_THAT((converted<std::uint8_t, float>(DType::kUInt8, DType::kFloat32,
                                              {255.9f, -1.0f, 256.0f, 12.5f}, 1.0)),
              testing::ElementsAre(255, 0, 255, 12));
  EXPECT_THAT((converted<std::int32_t, std::int64_t>(DType::kInt32, DType::kInt64,
                                                     {std::int64_t{1} << 40, -5}, 1.0)),
              testing::ElementsAre(2147483647, -5));
}

TEST(ConvertSemantics, WhatIsThereIsNotWritten) {
  static const float kReadOnly[] = {1, 2, 3};  // a write to it ends the process
  convert(DType::kFloat32, const_cast<float*>(kReadOnly), DType::kFloat32, kReadOnly, 3, 1.0);
  float values[] = {1, 2, 3};
  convert(DType::kFloat32, values, DType::kFloat32, values, 3, 2.0);
  EXPECT_EQ(values[2], 6);
}

TEST(ConvertSemantics, EqualDTypesCopyEvenSignallingNaNs) {
  const std::vector<std::uint32_t> bits = {0x7f800001u, 0xffc12345u};
  EXPECT_EQ((converted<std::uint32_t, std::uint32_t>(DType::kFloat32, DType::kFloat32, bits)),
            bits);
}

TEST(ConvertSemantics, DoubleToHalfIsRoundedOnce) {
  // Just above a tie of float16. If rounded to float32 first, it would be the tie and be rounded
  // down.
  const std::vector<double> above_tie = {1.0 + 0x1p-11 + 0x1p-40};
  const auto half = converted<Float16>(DType::kFloat16, DType::kFloat64, above_tie);
  EXPECT_EQ(half[0].bits, 0x3c01);
}

// Combining a number with the identity element, in either order, leaves its bits unchanged.
TEST(Identity, ChangesNoResultOfAnyOperation) {
  for (const DType dtype : kNumberDTypes) {
    for (const ReduceOp op : kEveryReduceOp) {
      if (!takes(op, dtype)) continue;
      const std::vector<double> numbers = {0, 1, 3, 100, -1, -100, 1e30, -1e30};
      const std::size_t count = numbers.size();
      std::vector<std::byte> values(count * size_of(dtype)), identity(values), result(values);
      convert(dtype, values.data(), DType::kFloat64, numbers.data(), count, 1.0);
      fill_identity({identity.data(), count, dtype}, op);
      for (const bool is_first : {true, false}) {
        const void* const sources[] = {is_first ? identity.data() : values.data(),
                                       is_first ? values.data() : identity.data()};
        reduce(dtype, op, result.data(), sources, count, 1.0);
        EXPECT_EQ(result, values) << to_string(op) << " of " << to_string(dtype);
      }
    }
  }
}

TEST(Identity, OfNoElementsTouchesNothing) {
  fill_identity({nullptr, 0, DType::kFloat32}, ReduceOp::kSum);
}

}  // namespace
}  // namespace kolo
