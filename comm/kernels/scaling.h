#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kolo {

/// What `reduce` does to a combined value, given its scale. A double cannot hold 1/3: the scale
/// that is nearest to 1/n stands for 1/n, and the value is divided by n, with one rounding.
/// Any other scale multiplies.
struct Scaling {
  double factor = 1;
  std::int32_t divisor = 0;  ///< n, if the factor stands for 1/n; otherwise 0.

  constexpr Scaling() = default;
  /// Larger whole numbers than this are not all floats.
  static constexpr std::int32_t kMostDivisor = 1 << 24;
  // Implicit: a scale says it all.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Scaling(double scale) : factor(scale) {
    const double inverse = std::round(1 / scale);
    if (inverse >= 1 && inverse <= kMostDivisor && 1 / inverse == scale) {
      divisor = static_cast<std::int32_t>(inverse);
    }
  }

  /// Whether a floating-point value is divided: the inverse of a power of two is exact, and to
  /// multiply by it is faster.
  bool divides() const {
    return divisor != 0 && !std::has_single_bit(static_cast<std::uint32_t>(divisor));
  }
  /// What a floating-point value is divided or multiplied by.
  double operand() const { return divides() ? divisor : factor; }
};

}  // namespace kolo
