#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/half.h"
#include "comm/base/visit_dtype.h"

namespace kolo::test {

/// Returns the bytes of `count` elements of any dtype. Most are ordinary numbers; some floats are
/// zero, denormal, infinite, NaN or close to a rounding tie.
inline std::vector<std::byte> samples(DType dtype, std::size_t count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
  if (!is_float(dtype)) return bytes;
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < count; ++i) {
      if (random() % 4 == 0) continue;  // keeps arbitrary bits
      const double ordinary = std::normal_distribution<double>(0.0, 10.0)(random);
      T value;
      if constexpr (std::is_same_v<T, Float16>) {
        value = to_float16(ordinary);
      } else if constexpr (std::is_same_v<T, BFloat16>) {
        value = to_bfloat16(ordinary);
      } else {
        // Short binary fractions are ties when they are rounded to 16 bits.
        value = static_cast<T>(random() % 2 ? ordinary : std::nearbyint(ordinary * 1024) / 4096);
      }
      std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace kolo::test
