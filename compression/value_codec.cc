#include "compression/value_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "comm/base/check.h"
#include "comm/kernels/wire_kernels.h"

namespace kolo {
namespace {

// Values in L1 between memory of any alignment and the kernels.
constexpr std::size_t kBlock = 512;

void check_wire(DType wire, int exponent) {
  check(wire == DType::kFloat32 || is_16bit_float(wire),
        "values travel as float32, float16 or bfloat16");
  check(is_exponent_of(wire, exponent), "no such exponent for the values of a payload");
}

template <typename Run>
void for_blocks(std::size_t count, const Run& run) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    run(begin, std::min(kBlock, count - begin));
  }
}

}  // namespace

int fitting_exponent(DType wire, float largest) {
  if (wire != DType::kFloat16 || largest == 0.0f) return 0;
  return std::clamp(14 - std::ilogb(largest), kLeastWireExponent, kMostWireExponent);
}

bool is_exponent_of(DType wire, int exponent) {
  if (wire != DType::kFloat16) return exponent == 0;
  return exponent >= kLeastWireExponent && exponent <= kMostWireExponent;
}

void encode_values(DType wire, int exponent, std::span<const float> values,
                   std::span<std::byte> out) {
  check_wire(wire, exponent);
  check(out.size() == values.size() * size_of(wire), "encoded values have another size");
  if (values.empty()) return;
  if (wire == DType::kFloat32) {
    std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  std::array<std::uint16_t, kBlock> encoded;
  for_blocks(values.size(), [&](std::size_t begin, std::size_t count) {
    to_wire(wire, encoded.data(), DType::kFloat32, values.data() + begin, count, exponent);
    std::memcpy(out.data() + 2 * begin, encoded.data(), 2 * count);
  });
}

void decode_values(DType wire, int exponent, std::span<const std::byte> in,
                   std::span<float> values) {
  check_wire(wire, exponent);
  check(in.size() == values.size() * size_of(wire), "encoded values have another size");
  if (values.empty()) return;
  if (wire == DType::kFloat32) {
    std::memcpy(values.data(), in.data(), in.size());
    return;
  }
  const double scale = std::ldexp(1.0, -exponent);
  std::array<std::uint16_t, kBlock> encoded;
  for_blocks(values.size(), [&](std::size_t begin, std::size_t count) {
    std::memcpy(encoded.data(), in.data() + 2 * begin, 2 * count);
    convert(DType::kFloat32, values.data() + begin, wire, encoded.data(), count, scale);
  });
}

void round_to_wire(DType wire, int exponent, std::span<const float> values,
                   std::span<float> rounded) {
  check(rounded.size() == values.size(), "rounded values have another count");
  std::array<std::byte, kBlock * sizeof(float)> encoded;
  for_blocks(values.size(), [&](std::size_t begin, std::size_t count) {
    const std::span<std::byte> bytes(encoded.data(), count * size_of(wire));
    encode_values(wire, exponent, values.subspan(begin, count), bytes);
    decode_values(wire, exponent, bytes, rounded.subspan(begin, count));
  });
}

}  // namespace kolo
