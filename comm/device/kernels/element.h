#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/base/half.h"
#include "comm/kernels/host_device.h"
#include "comm/kernels/scaling.h"

/// The arithmetic of the device kernels on one element. Its bits equal those of
/// comm/kernels/reduce_kernels.h. These functions are inlined in kernels and also tested on the
/// processor. They must be compiled without fused multiply-add. On a GPU, 16-bit floats are
/// converted by single instructions.
namespace kolo::element {

template <typename T>
inline constexpr bool kIsHalf = std::same_as<T, Float16> || std::same_as<T, BFloat16>;

/// The type in which elements of type T are combined.
template <typename T>
using Accum = std::conditional_t<kIsHalf<T>, float, T>;

/// The type in which a value is scaled when it is converted between From and To.
template <typename To, typename From>
using Common =
    std::conditional_t<std::same_as<Accum<To>, float> && std::same_as<Accum<From>, float>, float,
                       double>;

/// Converts to a wider type, exactly. The payload of a NaN is unspecified until `round_to`.
template <typename Wide, typename T>
KOLO_HOST_DEVICE inline Wide widen(T value) {
  if constexpr (std::same_as<T, BFloat16>) {
    return static_cast<Wide>(std::bit_cast<float>(std::uint32_t{value.bits} << 16));
  } else if constexpr (std::same_as<T, Float16>) {
#if defined(__CUDA_ARCH__)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return static_cast<Wide>(wide);
#else
    return static_cast<Wide>(to_float(value));
#endif
  } else {
    return static_cast<Wide>(value);
  }
}

/// Converts to an integer: truncates toward zero and saturates; NaN gives 0.
template <std::integral T>
KOLO_HOST_DEVICE inline T to_integer(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  if (value != value) return 0;
  if (value <= static_cast<double>(kMin)) return kMin;
  if (value >= static_cast<double>(kMax)) return kMax;
  return static_cast<T>(value);
}

KOLO_HOST_DEVICE inline BFloat16 round_to_bfloat16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  if (value != value) bits = 0x7fc0;
  return {bits};
#else
  return to_bfloat16(value);
#endif
}

KOLO_HOST_DEVICE inline Float16 round_to_float16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  if (value != value) bits = 0x7e00;
  return {bits};
#else
  return to_float16(value);
#endif
}

/// Rounds a result to the stored type T; no other function rounds. Every NaN becomes the quiet NaN
/// with positive sign and empty payload.
template <typename T, typename Wide>
KOLO_HOST_DEVICE inline T round_to(Wide value) {
  if constexpr (kIsHalf<T> && std::same_as<Wide, double>) {
    return round_to<T>(to_float_odd(value));
  } else if constexpr (std::same_as<T, BFloat16>) {
    return round_to_bfloat16(value);
  } else if constexpr (std::same_as<T, Float16>) {
    return round_to_float16(value);
  } else if constexpr (std::floating_point<T>) {
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
    return value != value ? kNaN : static_cast<T>(value);
  } else {
    return to_integer<T>(value);
  }
}

/// Converts one element as `kolo::convert` does. `factor` is the scale.
template <typename To, typename From>
KOLO_HOST_DEVICE inline To convert(From value, Common<To, From> factor) {
  return round_to<To>(widen<Common<To, From>>(value) * factor);
}

/// A `Scaling` whose operand has the type in which elements of type T are combined.
template <typename T>
struct ElementScaling {
  using Operand = std::conditional_t<std::integral<T>, double, Accum<T>>;

  // Implicit, like the constructor of Scaling.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ElementScaling(const Scaling& scale)
      : operand(static_cast<Operand>(scale.operand())),
        divisor(scale.divisor),
        divides(scale.divides()) {}

  Operand operand;
  std::int32_t divisor;
  bool divides;
};

/// Scales and rounds one combined element, as `kolo::reduce` does.
template <typename T>
KOLO_HOST_DEVICE inline T scaled(Accum<T> value, const ElementScaling<T>& scale) {
  if constexpr (std::integral<T>) {
    if (scale.divisor == 1) return value;
    if (scale.divisor != 0) return static_cast<T>(value / scale.divisor);
    return to_integer<T>(static_cast<double>(value) * scale.operand);
  } else {
    return round_to<T>(scale.divides ? value / scale.operand : value * scale.operand);
  }
}

/// Whether a stored value is infinite or NaN; false for integers.
template <typename T>
KOLO_HOST_DEVICE constexpr bool non_finite(T value) {
  if constexpr (std::same_as<T, Float16>) {
    return (value.bits & 0x7c00u) == 0x7c00u;
  } else if constexpr (std::same_as<T, BFloat16>) {
    return (value.bits & 0x7f80u) == 0x7f80u;
  } else if constexpr (std::floating_point<T>) {
    return !(value - value == 0);
  } else {
    return false;
  }
}

}  // namespace kolo::element
