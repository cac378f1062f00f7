#include <cmath>
#include <memory>

#include "compression/quantised_codec.h"

namespace kolo {
namespace {

/// Encodes values as integers from -127 to 127, times a power of two per block. Rounding is
/// stochastic.
///
///     | exponent | code 0 | code 1 | ...          one byte each
class Int8 final : public Quantiser {
 public:
  explicit Int8(float) {}

  std::size_t bytes(std::size_t count) const override { return 1 + count; }

  void encode(std::span<const float> values, const Dither& dither,
              std::span<std::byte> codes) const override {
    const int exponent = scale_exponent(largest_magnitude(values), 127.0f);
    const float inverse = std::ldexp(1.0f, -exponent);
    codes[0] = exponent_code(exponent);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float moved = values[i] * inverse + dither(i);
      const int towards_zero = static_cast<int>(moved);
      const int floor = towards_zero - (moved < static_cast<float>(towards_zero) ? 1 : 0);
      codes[1 + i] = static_cast<std::byte>(floor);
    }
  }

  void decode(std::span<const std::byte> codes, std::span<float> values) const override {
    const float scale = std::ldexp(1.0f, coded_exponent(codes[0]));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(std::to_integer<std::int8_t>(codes[1 + i])) * scale;
    }
  }
};

}  // namespace

constinit const CompressionMethod methods::int8 =
    quantised<Int8>({.name = "int8", .title = "8-bit", .is_close = true});

}  // namespace kolo
