#pragma once

#include <cstdint>

namespace kolo {

/// Storage types without arithmetic: Float16 is IEEE 754 binary16, BFloat16 is the upper half of a
/// binary32 number.
struct Float16 {
  std::uint16_t bits;
  friend constexpr bool operator==(Float16 a, Float16 b) { return a.bits == b.bits; }
  friend constexpr bool operator!=(Float16 a, Float16 b) { return a.bits != b.bits; }
};
struct BFloat16 {
  std::uint16_t bits;
  friend constexpr bool operator==(BFloat16 a, BFloat16 b) { return a.bits == b.bits; }
  friend constexpr bool operator!=(BFloat16 a, BFloat16 b) { return a.bits != b.bits; }
};

/// Replaces std::bit_cast, which C++17 lacks.
template <typename To, typename From>
constexpr To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

/// Conversions between float and 16-bit floats. Widening is exact. Narrowing rounds to nearest,
/// ties to even: overflow becomes infinity, and subnormals are kept. Every NaN becomes the quiet
/// NaN with positive sign and empty payload.
///
/// Threads: pure; usable in constant expressions.
/// Source:  rounding of subnormals: F. Giesen, float_to_half_fast3_rtne (public domain, 2012).
constexpr float to_float(BFloat16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  return bits_as<float>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits);
}

constexpr float to_float(Float16 value) {
  constexpr std::uint32_t kExponent = 0x1fu << 23;       // The exponent field, moved into place.
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;  // From binary16's bias to binary32's.
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const std::uint32_t exponent = magnitude & kExponent;
  if (magnitude > kExponent) return bits_as<float>(0x7fc00000u);
  if (exponent == kExponent) return bits_as<float>(sign | (magnitude + 2 * kRebias));
  if (exponent != 0) return bits_as<float>(sign | (magnitude + kRebias));
  // Subnormal: add the leading one of 2^-14, then subtract it again exactly.
  constexpr std::uint32_t kSmallestNormal = kRebias + (1u << 23);
  const float scaled =
      bits_as<float>(magnitude + kSmallestNormal) - bits_as<float>(kSmallestNormal);
  return bits_as<float>(sign | bits_as<std::uint32_t>(scaled));
}

constexpr BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fc0};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

constexpr Float16 to_float16(float value) {
  const std::uint32_t bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000) {
    return {0x7e00};
  } else if (magnitude >= (127u + 16u) << 23) {
    result = 0x7c00;
  } else if (magnitude < (127u - 14u) << 23) {
    // Subnormal: the last bit of 0.5f has the value of the smallest binary16 number, so adding 0.5f
    // rounds to a multiple of that number.
    constexpr float kMagic = 0.5f;
    result =
        bits_as<std::uint32_t>(bits_as<float>(magnitude) + kMagic) - bits_as<std::uint32_t>(kMagic);
  } else {
    // Rounding may carry into the exponent, up to infinity; the encoding makes this correct.
    const std::uint32_t odd = (magnitude >> 13) & 1;
    result = (magnitude - ((127u - 15u) << 23) + 0xfff + odd) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | result)};
}

/// Rounds to odd: inexact results get an odd last bit. Rounding the result again, to at least two
/// bits fewer, gives the same as rounding `value` once.
/// Source: Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008.
constexpr float to_float_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const std::uint32_t bits = bits_as<std::uint32_t>(nearest);
  if (back == value || value != value || (bits & 1) == 1) return nearest;
  const bool away_from_zero = value < 0 ? back < value : back > value;
  return bits_as<float>(away_from_zero ? bits - 1 : bits + 1);
}

constexpr BFloat16 to_bfloat16(double value) { return to_bfloat16(to_float_odd(value)); }
constexpr Float16 to_float16(double value) { return to_float16(to_float_odd(value)); }

/// Largest finite value and infinities.
inline constexpr Float16 kLargestFloat16{0x7bff};
inline constexpr Float16 kInfiniteFloat16{0x7c00};
inline constexpr BFloat16 kInfiniteBFloat16{0x7f80};

/// Replaces infinity by the largest finite value of the same sign. Keeps other values.
constexpr Float16 pulled_in(Float16 value) {
  const bool is_infinite = (value.bits & 0x7fff) == kInfiniteFloat16.bits;
  return {static_cast<std::uint16_t>(value.bits - (is_infinite ? 1 : 0))};
}
constexpr BFloat16 pulled_in(BFloat16 value) {
  const bool is_infinite = (value.bits & 0x7fff) == kInfiniteBFloat16.bits;
  return {static_cast<std::uint16_t>(value.bits - (is_infinite ? 1 : 0))};
}

}  // namespace kolo
