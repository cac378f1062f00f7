#pragma once

#include <cmath>
#include <cstdint>

namespace kolo {

/// How `reduce` applies a scale to a combined value. A double cannot represent 1/3 exactly.
/// Therefore, if a scale is the double nearest to the inverse of a float f, such as 1.0 / n for n
/// ranks, the value is divided by f, with one rounding. Any other scale multiplies.
struct Scaling {
  double factor = 1;
  double inverse = 0;        ///< If not 0, `factor` stands for 1 / inverse.
  std::int32_t divisor = 0;  ///< `inverse`, if it is a whole number; otherwise 0.

  // Implicit, so that callers can pass a scale.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Scaling(double scale) : factor(scale) {
    constexpr double kSmallest = 0x1p-100, kLargest = 0x1p100;  // well inside the range of floats
    if (!(scale > kSmallest && scale < kLargest)) return;
    const double nearest = static_cast<float>(1 / scale);
    if (1 / nearest != scale) return;
    inverse = nearest;
    constexpr double kMostWhole = 1 << 24;  // beyond this, some whole numbers are not floats
    if (inverse <= kMostWhole && std::trunc(inverse) == inverse) {
      divisor = static_cast<std::int32_t>(inverse);
    }
  }

  /// Whether floating-point values are divided. A factor that is a power of two is exact, and
  /// multiplying by it is faster.
  bool divides() const {
    int exponent = 0;
    return inverse != 0 && std::frexp(inverse, &exponent) != 0.5;
  }
  /// The divisor or factor of floating-point values.
  double operand() const { return divides() ? inverse : factor; }
};

}  // namespace kolo
