#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>

#include "compression/quantised_codec.h"

namespace kolo {
namespace {

/// Encodes values as float8 e4m3 (one sign bit, four exponent bits, three fraction bits; up to
/// 448), times a power of two per block. Rounding is stochastic. Source: Micikevicius and others,
/// "FP8 formats for deep learning", 2022.
///
///     | exponent | code 0 | code 1 | ...          one byte each
class Fp8 final : public Quantiser {
 public:
  explicit Fp8(float) {}

  std::size_t bytes(std::size_t count) const override { return 1 + count; }

  void encode(std::span<const float> values, const Dither& dither,
              std::span<std::byte> codes) const override {
    const int exponent = scale_exponent(largest_magnitude(values), 448.0f);
    const float inverse = std::ldexp(1.0f, -exponent);
    codes[0] = exponent_code(exponent);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t sign = std::signbit(values[i]) ? 0x80U : 0U;
      codes[1 + i] =
          static_cast<std::byte>(sign | magnitude_code(std::fabs(values[i] * inverse), dither(i)));
    }
  }

  void decode(std::span<const std::byte> codes, std::span<float> values) const override {
    const float scale = std::ldexp(1.0f, coded_exponent(codes[0]));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto code = std::to_integer<std::uint32_t>(codes[1 + i]);
      const std::uint32_t magnitude = code & 0x7fU;
      const float value = magnitude < kLeastNormal
                              ? static_cast<float>(magnitude) * kLeast
                              : std::bit_cast<float>((magnitude + kBias) << kDroppedBits);
      values[i] = (code > 0x7fU ? -value : value) * scale;
    }
  }

 private:
  static constexpr std::uint32_t kLeastNormal = 8;   // code of 2^-6, the least normal magnitude
  static constexpr float kLeast = 0x1p-9f;           // least magnitude above zero
  static constexpr std::uint32_t kDroppedBits = 20;  // fraction bits that e4m3 lacks
  static constexpr std::uint32_t kBias = (127U - 7U) << 3;  // difference of biases, in codes

  /// Returns the code of a magnitude: adds `dither` times the code's last place, then truncates.
  static std::uint32_t magnitude_code(float magnitude, float dither) {
    if (magnitude < kLeastNormal * kLeast) {
      return static_cast<std::uint32_t>(magnitude / kLeast + dither);
    }
    const auto added = static_cast<std::uint32_t>(dither * (1U << kDroppedBits));
    return ((std::bit_cast<std::uint32_t>(magnitude) + added) >> kDroppedBits) - kBias;
  }
};

}  // namespace

constinit const CompressionMethod methods::fp8 =
    quantised<Fp8>({.name = "fp8", .title = "8-bit float", .is_close = true});

}  // namespace kolo
