#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/base/reduction.h"
#include "comm/kernels/host_device.h"

/// The definitions of the operations: how each combines two values of the accumulation type, on the
/// processor and on devices. (Vector kernels: see simd_lanes-inl.h.) An operation is defined on the
/// types that its `apply` accepts. Pure.
namespace kolo::combine {

template <std::floating_point A>
KOLO_HOST_DEVICE inline bool is_negative(A value) {
  using Bits = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  return std::bit_cast<Bits>(value) < 0;
}

// Integers wrap. Casts to uint64 avoid signed overflow, also by promotion of narrow types to int.
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

// IEEE 754-2019 minimum and maximum: NaN if either operand is NaN, and -0 < +0, so that the result
// does not depend on the order of contributions.
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

/// Base of operations that treat all bits alike.
struct OfBits {};

struct BitAnd : OfBits {
  template <std::integral A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    return static_cast<A>(a & b);
  }
};

struct BitOr : OfBits {
  template <std::integral A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    return static_cast<A>(a | b);
  }
};

struct BitXor : OfBits {
  template <std::integral A>
  KOLO_HOST_DEVICE static A apply(A a, A b) {
    return static_cast<A>(a ^ b);
  }
};

/// Whether operation Op is defined on type A.
template <typename Op, typename A>
concept Combines = requires(A a) {
  Op::apply(a, a);
};

/// Calls `visitor` with the struct above that implements `op`.
template <typename Visitor>
decltype(auto) visit_op(ReduceOp op, Visitor&& visitor) {
  switch (op) {
    case ReduceOp::kMin:
      return visitor(Min());
    case ReduceOp::kMax:
      return visitor(Max());
    case ReduceOp::kProd:
      return visitor(Prod());
    case ReduceOp::kBitAnd:
      return visitor(BitAnd());
    case ReduceOp::kBitOr:
      return visitor(BitOr());
    case ReduceOp::kBitXor:
      return visitor(BitXor());
    case ReduceOp::kSum:
    case ReduceOp::kAverage:    // The caller divides afterwards.
    case ReduceOp::kPremulSum:  // The caller has multiplied the contributions.
      break;
  }
  return visitor(Sum());
}

}  // namespace kolo::combine
