#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/device/kernels/host_device.h"

/// The operations of `reduce` on two values of the accumulation type. Pure.
namespace kolo::element {

template <std::floating_point A>
KOLO_HOST_DEVICE inline bool is_negative(A value) {
  using Bits = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  return std::bit_cast<Bits>(value) < 0;
}

// Integers wrap: unsigned arithmetic has no overflow. Narrow types would be promoted to int.
struct Sum {
  template <typename A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (std::integral<A>) {
      return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <typename A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (std::integral<A>) {
      return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

// IEEE 754-2019 minimum and maximum: NaN if either is NaN, and -0 < +0, so that the result does not
// depend on the order of contributions.
struct Min {
  template <typename A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (std::floating_point<A>) {
      if (a != a || b != b) return std::numeric_limits<A>::quiet_NaN();
      if (a == b) return is_negative(a) ? a : b;
    }
    return b < a ? b : a;
  }
};

struct Max {
  template <typename A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (std::floating_point<A>) {
      if (a != a || b != b) return std::numeric_limits<A>::quiet_NaN();
      if (a == b) return is_negative(a) ? b : a;
    }
    return b > a ? b : a;
  }
};

}  // namespace kolo::element
