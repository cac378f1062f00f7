#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/kernels/host_device.h"

/// Codes with a few bits per value, for the processor and for device kernels. Both get the same
/// bits, if they are compiled without fused multiply-add. Pure.
///
///     the codes of a block   | header, if the code has one | packed codes of the values |
///
/// Each code is a class. kHeader is the number of bytes of its header, and kPerByte the number of
/// values in a byte. `header` computes the header from the values of a block; the constructor takes
/// the header and the threshold of the method. `place` is the lowest bit of value i in its byte.
namespace kolo::codes {

/// Largest number of values in a block. The values of a block belong to one tensor.
inline constexpr std::size_t kBlock = 256;

/// As std::bit_cast, which device code takes only with a flag.
template <typename To, typename From>
KOLO_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

KOLO_HOST_DEVICE inline std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

/// Pseudo-random numbers in (0, 1) for stochastic rounding. They depend only on the step, the rank
/// and the element, so a run repeats itself bit for bit, also after a checkpoint.
class Dither {
 public:
  /// The numbers for the block that begins with `element` of the plan.
  KOLO_HOST_DEVICE Dither(std::uint64_t seed, std::uint64_t element)
      : key_(static_cast<std::uint32_t>(mixed(seed ^ element) >> 32)) {}
  /// Returns the seed of one step on one rank. Values and sums have different numbers.
  static std::uint64_t seed(std::size_t step, int rank, bool of_sums) {
    return mixed(mixed(step) ^ (2 * static_cast<std::uint64_t>(rank) + (of_sums ? 1 : 0)));
  }
  static Dither of(std::size_t step, int rank, bool of_sums, std::size_t element) {
    return {seed(step, rank, of_sums), element};
  }

  /// Returns number `i`, an odd multiple of 2^-17. All such numbers are equally likely.
  KOLO_HOST_DEVICE float operator()(std::size_t i) const {
    std::uint32_t x = key_ + static_cast<std::uint32_t>(i) * 0x9e3779b9U;  // last step of murmur3
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    return (static_cast<float>((x ^ x >> 16) >> 16) + 0.5f) * 0x1p-16f;
  }

 private:
  std::uint32_t key_;
};

/// Returns 2^(header - 127). Scales are powers of two, so that a code times a scale is exact.
KOLO_HOST_DEVICE inline float scale_of(std::uint32_t header) {
  return bits_as<float>(header > 0 ? header << 23 : 1U << 22);
}

KOLO_HOST_DEVICE inline float magnitude(float value) {
  return bits_as<float>(bits_as<std::uint32_t>(value) & 0x7fffffffU);
}

KOLO_HOST_DEVICE inline float largest_magnitude(const float* values, std::size_t count) {
  // Bits of magnitudes order like them; compilers vectorise maxima of integers only.
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t bits = bits_as<std::int32_t>(values[i]) & 0x7fffffff;
    largest = largest < bits ? bits : largest;
  }
  return bits_as<float>(largest);
}

/// Returns the header of the smallest scale, from 2^-126, for which largest <= most * scale. The
/// inverse of that least scale is finite.
KOLO_HOST_DEVICE inline std::uint32_t scale_header(float largest, float most) {
  constexpr std::uint32_t kLeast = 1;
  const std::uint32_t exponent = (bits_as<std::uint32_t>(largest) >> 23) + 127;
  const std::uint32_t of_most = bits_as<std::uint32_t>(most) >> 23;
  const std::uint32_t header = exponent < of_most + kLeast ? kLeast : exponent - of_most;
  return largest <= most * scale_of(header) ? header : header + 1;
}

enum class Kind : std::uint8_t { kInt8, kFp8, kTwoBit, kSign };

/// Integers from -127 to 127, times a power of two. Rounding is stochastic.
class Int8 {
 public:
  static constexpr Kind kKind = Kind::kInt8;
  static constexpr std::size_t kHeader = 1, kPerByte = 1;
  KOLO_HOST_DEVICE static std::uint32_t header(const float* values, std::size_t count) {
    return scale_header(largest_magnitude(values, count), 127.0f);
  }
  KOLO_HOST_DEVICE Int8(std::uint32_t header, float)
      : scale_(scale_of(header)), inverse_(scale_of(254 - header)) {}

  KOLO_HOST_DEVICE static unsigned place(std::size_t) { return 0; }
  KOLO_HOST_DEVICE std::uint32_t encode(float value, float dither) const {
    const float moved = value * inverse_ + dither;
    const int towards_zero = static_cast<int>(moved);
    const int floor = towards_zero - (moved < static_cast<float>(towards_zero) ? 1 : 0);
    return static_cast<std::uint8_t>(floor);
  }
  KOLO_HOST_DEVICE float decode(std::uint32_t code) const {
    return static_cast<float>(static_cast<std::int8_t>(code)) * scale_;
  }

 private:
  float scale_, inverse_;
};

/// float8 e4m3 (one sign bit, four exponent bits, three fraction bits; up to 448), times a power of
/// two. Rounding is stochastic. Source: Micikevicius and others, "FP8 formats for deep learning",
/// 2022.
class Fp8 {
 public:
  static constexpr Kind kKind = Kind::kFp8;
  static constexpr std::size_t kHeader = 1, kPerByte = 1;
  KOLO_HOST_DEVICE static std::uint32_t header(const float* values, std::size_t count) {
    return scale_header(largest_magnitude(values, count), 448.0f);
  }
  KOLO_HOST_DEVICE Fp8(std::uint32_t header, float)
      : scale_(scale_of(header)), inverse_(scale_of(254 - header)) {}

  KOLO_HOST_DEVICE static unsigned place(std::size_t) { return 0; }
  /// Adds `dither` times the code's last place to the magnitude, then truncates.
  KOLO_HOST_DEVICE std::uint32_t encode(float value, float dither) const {
    const std::uint32_t sign = bits_as<std::uint32_t>(value) >> 31 << 7;
    const float scaled = magnitude(value * inverse_);
    if (scaled < kLeastNormal * kLeast) {
      return sign | static_cast<std::uint32_t>(scaled / kLeast + dither);
    }
    const auto added = static_cast<std::uint32_t>(dither * (1U << kDroppedBits));
    return sign | (((bits_as<std::uint32_t>(scaled) + added) >> kDroppedBits) - kBias);
  }
  KOLO_HOST_DEVICE float decode(std::uint32_t code) const {
    const std::uint32_t bits = code & 0x7fU;
    const float value = bits < kLeastNormal ? static_cast<float>(bits) * kLeast
                                            : bits_as<float>((bits + kBias) << kDroppedBits);
    return (code > 0x7fU ? -value : value) * scale_;
  }

 private:
  static constexpr std::uint32_t kLeastNormal = 8;   // code of 2^-6, the least normal magnitude
  static constexpr float kLeast = 0x1p-9f;           // least magnitude above zero
  static constexpr std::uint32_t kDroppedBits = 20;  // fraction bits that e4m3 lacks
  static constexpr std::uint32_t kBias = (127U - 7U) << 3;  // difference of biases, in codes

  float scale_, inverse_;
};

/// The threshold for values from it up (3), minus the threshold for values from that down (2), 0
/// for others (0). The first of four codes has the highest bits. Source: the 2-bit compression of
/// MXNet's key-value store.
class TwoBit {
 public:
  static constexpr Kind kKind = Kind::kTwoBit;
  static constexpr std::size_t kHeader = 0, kPerByte = 4;
  KOLO_HOST_DEVICE static std::uint32_t header(const float*, std::size_t) { return 0; }
  KOLO_HOST_DEVICE TwoBit(std::uint32_t, float threshold) : threshold_(threshold) {}

  KOLO_HOST_DEVICE static unsigned place(std::size_t i) {
    return 6 - 2 * static_cast<unsigned>(i % 4);
  }
  KOLO_HOST_DEVICE std::uint32_t encode(float value, float) const {
    return value >= threshold_ ? 3 : value <= -threshold_ ? 2 : 0;
  }
  KOLO_HOST_DEVICE float decode(std::uint32_t code) const {
    // Without branches, which the processor could not predict.
    const std::uint32_t is_other = code >> 1, is_negative = is_other & ~code;
    return bits_as<float>(((0 - is_other) & bits_as<std::uint32_t>(threshold_)) ^ is_negative
                                                                                      << 31);
  }

 private:
  float threshold_;
};

/// The sign, 1 for negative values, first in the lowest bit. All magnitudes of a block become their
/// mean, rounded to a power of two (by a factor of at most the square root of two). Source:
/// Karimireddy, Rebjock, Stich and Jaggi, ICML 2019.
class Sign {
 public:
  static constexpr Kind kKind = Kind::kSign;
  static constexpr std::size_t kHeader = 1, kPerByte = 8;
  /// Returns 0 if all values are zero.
  KOLO_HOST_DEVICE static std::uint32_t header(const float* values, std::size_t count) {
    constexpr int kLeast = 1, kMost = 254;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += double{magnitude(values[i])};
    if (sum == 0) return 0;
    const double mean = sum / static_cast<double>(count);
    const double moved = mean * 1.4142135623730951;  // the square root of two
    const int header = static_cast<int>(bits_as<std::uint64_t>(moved) >> 52) - 1023 + 127;
    return static_cast<std::uint32_t>(header < kLeast ? kLeast : header < kMost ? header : kMost);
  }
  KOLO_HOST_DEVICE Sign(std::uint32_t header, float)
      : scale_(header > 0 ? scale_of(header) : 0.0f) {}

  KOLO_HOST_DEVICE static unsigned place(std::size_t i) { return static_cast<unsigned>(i % 8); }
  KOLO_HOST_DEVICE std::uint32_t encode(float value, float) const { return value < 0 ? 1 : 0; }
  KOLO_HOST_DEVICE float decode(std::uint32_t code) const {
    return bits_as<float>(bits_as<std::uint32_t>(scale_) ^ code << 31);
  }

 private:
  float scale_;
};

/// Returns the bytes of the codes of a block of `count` values.
template <typename Code>
KOLO_HOST_DEVICE constexpr std::size_t bytes(std::size_t count) {
  return Code::kHeader + (count + Code::kPerByte - 1) / Code::kPerByte;
}

/// Returns the index after the last value in packed byte `j` of `count` values.
template <typename Code>
KOLO_HOST_DEVICE constexpr std::size_t end_of(std::size_t j, std::size_t count) {
  const std::size_t end = (j + 1) * Code::kPerByte;
  return Code::kPerByte == 1 || end < count ? end : count;
}

/// Returns packed byte `j` of a block of `count` values.
template <typename Code>
KOLO_HOST_DEVICE std::uint32_t packed(const Code& code, const float* values, std::size_t count,
                                      std::size_t j, const Dither& dither) {
  std::uint32_t byte = 0;
  for (std::size_t i = j * Code::kPerByte; i < end_of<Code>(j, count); ++i) {
    byte |= code.encode(values[i], dither(i)) << Code::place(i);
  }
  return byte;
}

/// Returns value `i` of a block, which is encoded in the packed byte `byte`.
template <typename Code>
KOLO_HOST_DEVICE float unpacked(const Code& code, std::uint32_t byte, std::size_t i) {
  constexpr std::uint32_t kMask = (1U << 8 / Code::kPerByte) - 1;
  return code.decode(byte >> Code::place(i) & kMask);
}

/// As `packed`; also subtracts from the values what their codes mean.
template <typename Code>
KOLO_HOST_DEVICE std::uint32_t take(const Code& code, float* values, std::size_t count,
                                    std::size_t j, const Dither& dither) {
  const std::uint32_t byte = packed(code, values, count, j, dither);
  for (std::size_t i = j * Code::kPerByte; i < end_of<Code>(j, count); ++i) {
    values[i] -= unpacked(code, byte, i);
  }
  return byte;
}

/// Calls visit(std::type_identity<Code>()) for the code of this kind.
template <typename Visit>
void visit(Kind kind, const Visit& visit) {
  switch (kind) {
    case Kind::kInt8:
      return visit(std::type_identity<Int8>());
    case Kind::kFp8:
      return visit(std::type_identity<Fp8>());
    case Kind::kTwoBit:
      return visit(std::type_identity<TwoBit>());
    case Kind::kSign:
      return visit(std::type_identity<Sign>());
  }
}

}  // namespace kolo::codes
