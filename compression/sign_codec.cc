#include <algorithm>
#include <cmath>
#include <memory>

#include "compression/quantised_codec.h"

namespace kolo {
namespace {

/// Encodes a value as its sign. All magnitudes of a block become their mean, rounded to a power of
/// two (by a factor of at most the square root of two). Source: Karimireddy, Rebjock, Stich and
/// Jaggi, ICML 2019.
///
///     | exponent | eight signs per byte, the first in the lowest bit, 1 for - |
class Sign final : public Quantiser {
 public:
  explicit Sign(float) {}

  std::size_t bytes(std::size_t count) const override { return 1 + (count + 7) / 8; }

  void encode(std::span<const float> values, const Dither&,
              std::span<std::byte> codes) const override {
    double sum = 0;
    for (const float value : values) sum += std::fabs(double{value});
    std::ranges::fill(codes, std::byte{0});
    codes[0] = kZero;
    if (sum == 0) return;
    const double mean = sum / static_cast<double>(values.size());
    const int nearest = std::ilogb(mean * std::sqrt(2.0));
    codes[0] = exponent_code(std::clamp(nearest, kLeast, kMost));
    for (std::size_t i = 0; i < values.size(); ++i) {
      codes[1 + i / 8] |= static_cast<std::byte>((values[i] < 0 ? 1U : 0U) << i % 8);
    }
  }

  void decode(std::span<const std::byte> codes, std::span<float> values) const override {
    const float scale = codes[0] == kZero ? 0.0f : std::ldexp(1.0f, coded_exponent(codes[0]));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool negative = (std::to_integer<unsigned>(codes[1 + i / 8]) >> i % 8 & 1U) != 0;
      values[i] = negative ? -scale : scale;
    }
  }

 private:
  static constexpr std::byte kZero{0};  // instead of an exponent: all values are zero
  static constexpr int kLeast = -126, kMost = 127;
};

}  // namespace

constinit const CompressionMethod methods::sign =
    quantised<Sign>({.name = "sign", .title = "sign"});

}  // namespace kolo
