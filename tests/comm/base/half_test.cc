#include "comm/base/half.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

namespace kolo {
namespace {

static_assert(to_float(Float16{0x3c00}) == 1.0f && to_float16(1.0f).bits == 0x3c00);
static_assert(to_float(BFloat16{0x3f80}) == 1.0f && to_bfloat16(1.0f).bits == 0x3f80);
static_assert(to_float16(1.0 / 3.0).bits == 0x3555 && to_bfloat16(1.0 / 3.0).bits == 0x3eab);

// Returns the value of positive bits by the definition of the format. Infinity counts as the power
// of two after the largest finite value, as in rounding.
double value_of(unsigned bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits);
  const int mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Fp16 {
  using Type = Float16;
  static constexpr int kExponentBits = 5;
  static constexpr unsigned kInfinity = 0x7c00;
  static constexpr unsigned kNaN = 0x7e00;
  template <typename From>
  static unsigned narrow(From value) {
    return to_float16(value).bits;
  }
};

struct Bf16 {
  using Type = BFloat16;
  static constexpr int kExponentBits = 8;
  static constexpr unsigned kInfinity = 0x7f80;
  static constexpr unsigned kNaN = 0x7fc0;
  template <typename From>
  static unsigned narrow(From value) {
    return to_bfloat16(value).bits;
  }
};

template <typename Format>
float widen(unsigned bits) {
  return to_float(typename Format::Type{static_cast<std::uint16_t>(bits)});
}

template <typename Format>
class HalfTest : public testing::Test {};
using Formats = testing::Types<Fp16, Bf16>;
TYPED_TEST_SUITE(HalfTest, Formats);

TYPED_TEST(HalfTest, WidensEveryFiniteValueExactlyAndBack) {
  for (unsigned bits = 0; bits < TypeParam::kInfinity; ++bits) {
    const double value = value_of(bits, TypeParam::kExponentBits);
    ASSERT_EQ(widen<TypeParam>(bits), value) << bits;
    ASSERT_EQ(widen<TypeParam>(bits | 0x8000), -value) << bits;
    ASSERT_EQ(TypeParam::narrow(static_cast<float>(value)), bits);
    ASSERT_EQ(TypeParam::narrow(-static_cast<float>(value)), bits | 0x8000);
    ASSERT_EQ(TypeParam::narrow(value), bits);
  }
  EXPECT_TRUE(std::signbit(widen<TypeParam>(0x8000)));
}

// Tests numbers around the midpoint of each two neighbours, including the step to infinity.
template <typename Format, typename From>
void check_ties() {
  for (unsigned bits = 0; bits < Format::kInfinity; ++bits) {
    const From low = static_cast<From>(value_of(bits, Format::kExponentBits));
    const double high = value_of(bits + 1, Format::kExponentBits);
    const From tie = static_cast<From>(low / 2 + static_cast<From>(high / 2));
    const unsigned even = bits + (bits & 1);
    const From infinity = std::numeric_limits<From>::infinity();
    ASSERT_EQ(Format::narrow(tie), even) << bits;
    ASSERT_EQ(Format::narrow(-tie), even | 0x8000) << bits;
    ASSERT_EQ(Format::narrow(std::nextafter(tie, From{0})), bits);
    ASSERT_EQ(Format::narrow(std::nextafter(tie, infinity)), bits + 1);
  }
}

TYPED_TEST(HalfTest, RoundsFloatToNearestEven) { check_ties<TypeParam, float>(); }
TYPED_TEST(HalfTest, RoundsDoubleOnce) { check_ties<TypeParam, double>(); }

TYPED_TEST(HalfTest, KeepsInfinityAndMakesEveryNaNTheCanonicalOne) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam::narrow(infinity), TypeParam::kInfinity);
  EXPECT_EQ(TypeParam::narrow(-infinity), TypeParam::kInfinity | 0x8000);
  EXPECT_EQ(TypeParam::narrow(1e300), TypeParam::kInfinity);
  EXPECT_EQ(widen<TypeParam>(TypeParam::kInfinity), infinity);
  EXPECT_EQ(TypeParam::narrow(-std::numeric_limits<double>::quiet_NaN()), TypeParam::kNaN);
  for (const std::uint32_t nan : {0x7f800001u, 0xffffffffu, 0x7fc00000u, 0xff801000u}) {
    EXPECT_EQ(TypeParam::narrow(std::bit_cast<float>(nan)), TypeParam::kNaN) << nan;
  }
  for (unsigned bits = TypeParam::kInfinity + 1; bits < 0x8000; ++bits) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widen<TypeParam>(bits)), 0x7fc00000u);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widen<TypeParam>(bits | 0x8000)), 0x7fc00000u);
  }
}

}  // namespace
}  // namespace kolo
