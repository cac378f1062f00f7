// A buffer's dtype is given explicitly or follows from its type. Otherwise it has no view.

#include <gtest/gtest.h>

#include <complex>
#include <span>

#include "comm/base/buffer_view.h"

/// A 16-bit float of another library, which a program registers as an element type.
struct OtherHalf {
  std::uint16_t bits;
};
template <>
inline constexpr std::optional<kolo::DType> kolo::kDTypeOf<OtherHalf> = kolo::DType::kFloat16;

namespace kolo {
namespace {

static_assert(kDTypeOf<float> == DType::kFloat32 && kDTypeOf<double> == DType::kFloat64);
static_assert(kDTypeOf<Float16> == DType::kFloat16 && kDTypeOf<BFloat16> == DType::kBFloat16);
static_assert(kDTypeOf<std::int8_t> == DType::kInt8 && kDTypeOf<std::uint8_t> == DType::kUInt8);
static_assert(kDTypeOf<std::int32_t> == DType::kInt32 && kDTypeOf<std::int64_t> == DType::kInt64);
static_assert(kDTypeOf<long long> == DType::kInt64 && kDTypeOf<bool> == DType::kBool);
static_assert(kDTypeOf<std::complex<float>> == DType::kComplex64);
static_assert(kDTypeOf<std::complex<double>> == DType::kComplex128);
static_assert(!kIsElement<void> && !kIsElement<std::byte> && !kIsElement<char> &&
              !kIsElement<long double> && !kIsElement<const float>);

template <typename... Arguments>
constexpr bool makes_view = std::is_constructible_v<BufferView, Arguments...>;
static_assert(makes_view<double*, std::size_t> && makes_view<double*, std::size_t, MemoryKind>);
static_assert(makes_view<void*, std::size_t, DType> && makes_view<OtherHalf*, std::size_t>);
static_assert(!makes_view<void*, std::size_t> && !makes_view<std::byte*, std::size_t>);
static_assert(!makes_view<char*, std::size_t> && !makes_view<const float*, std::size_t>);
static_assert(makes_view<std::vector<float>&> && makes_view<std::span<double>>);
static_assert(!makes_view<std::vector<float>> && !makes_view<const std::vector<float>&>);
static_assert(!makes_view<std::vector<std::byte>&>);

TEST(BufferView, HasTheDTypeOfItsElements) {
  double numbers[3] = {};
  const BufferView one{&numbers[1], 1};
  EXPECT_EQ(one.dtype, DType::kFloat64);
  EXPECT_EQ(one.bytes(), 8U);
  const BufferView all = numbers;
  EXPECT_EQ(all.data, numbers);
  EXPECT_EQ(all.count, 3U);
  EXPECT_EQ(all.dtype, DType::kFloat64);
  const BufferView said{numbers, 6, DType::kInt32};
  EXPECT_EQ(said.dtype, DType::kInt32);
  std::int64_t elsewhere = 0;
  const BufferView on_device{&elsewhere, 1, MemoryKind::kDevice};
  EXPECT_EQ(on_device.memory, MemoryKind::kDevice);
  EXPECT_EQ(on_device.dtype, DType::kInt64);
}

}  // namespace
}  // namespace kolo
