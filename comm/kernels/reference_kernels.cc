#include "comm/kernels/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/base/visit_dtype.h"
#include "comm/kernels/combine.h"
#include "comm/kernels/scaling.h"

namespace kolo::reference {
namespace {

using Outputs = std::span<void* const>;
using Sources = std::span<const void* const>;

template <typename T>
constexpr bool kIsHalf = std::same_as<T, Float16> || std::same_as<T, BFloat16>;

/// The type in which elements of type T are combined.
template <typename T>
using Accum = std::conditional_t<kIsHalf<T>, float, T>;

/// The type in which a value is scaled when it is converted between From and To.
template <typename To, typename From>
using Common =
    std::conditional_t<std::same_as<Accum<To>, float> && std::same_as<Accum<From>, float>, float,
                       double>;

template <typename Wide, typename T>
Wide widen(T value) {
  if constexpr (kIsHalf<T>) {
    return static_cast<Wide>(to_float(value));
  } else {
    return static_cast<Wide>(value);
  }
}

/// Converts to an integer: truncates toward zero and saturates; NaN gives 0.
template <std::integral T>
T to_integer(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(kMin)) return kMin;
  if (value >= static_cast<double>(kMax)) return kMax;
  return static_cast<T>(value);
}

/// Rounds a result to the stored type T; no other function rounds. Every NaN becomes the canonical
/// NaN, because machines differ in the operand whose NaN they return.
template <typename T, typename Wide>
T round_to(Wide value) {
  if constexpr (std::same_as<T, Float16>) {
    return to_float16(value);
  } else if constexpr (std::same_as<T, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::floating_point<T>) {
    return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(value);
  } else {
    return to_integer<T>(value);
  }
}

/// Rounds to T like `round_to`, but finite values stay finite.
template <typename T, typename Wide>
T round_within(Wide value) {
  const T rounded = round_to<T>(value);
  return std::isfinite(value) ? pulled_in(rounded) : rounded;
}

template <typename T>
T scaled(Accum<T> value, const Scaling& scale, Overflow overflow) {
  if constexpr (std::integral<T>) {
    if (scale.divisor != 0) return static_cast<T>(value / scale.divisor);
    return to_integer<T>(static_cast<double>(value) * scale.factor);
  } else {
    const auto operand = static_cast<Accum<T>>(scale.operand());
    const Accum<T> result = scale.divides() ? value / operand : value * operand;
    if constexpr (kIsHalf<T>) {
      if (overflow == Overflow::kLargest) return round_within<T>(result);
    }
    return round_to<T>(result);
  }
}

template <typename T, typename Op>
void reduce_as(Outputs outputs, Sources sources, std::size_t count, const Scaling& scale,
               Overflow overflow) {
  for (std::size_t i = 0; i < count; ++i) {
    auto accum = widen<Accum<T>>(static_cast<const T*>(sources[0])[i]);
    for (const void* source : sources.subspan(1)) {
      accum = Op::apply(accum, widen<Accum<T>>(static_cast<const T*>(source)[i]));
    }
    const T result = scaled<T>(accum, scale, overflow);
    for (void* output : outputs) static_cast<T*>(output)[i] = result;
  }
}

template <typename To, typename From>
void convert_as(void* dst, const void* src, std::size_t count, double scale) {
  using Wide = Common<To, From>;
  const Wide factor = static_cast<Wide>(scale);
  To* const out = static_cast<To*>(dst);
  const From* const in = static_cast<const From*>(src);
  for (std::size_t i = 0; i < count; ++i) out[i] = round_to<To>(widen<Wide>(in[i]) * factor);
}

/// Calls run(std::type_identity<T>()), where T is the C++ type of the wire dtype.
template <typename Run>
auto visit_wire(DType wire, Run run) {
  return wire == DType::kFloat16 ? run(std::type_identity<Float16>())
                                 : run(std::type_identity<BFloat16>());
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow) {
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    combine::visit_op(op, [&]<typename Op>(Op) {
      if constexpr (combine::Combines<Op, Accum<T>>) {
        reduce_as<T, Op>(outputs, sources, count, scale, overflow);
      } else {
        ensure(false, "the operation is not defined on these elements");
      }
    });
  });
}

void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale) {
  if (dst_dtype == src_dtype && scale == 1.0) {
    std::copy_n(static_cast<const std::byte*>(src), count * size_of(src_dtype),
                static_cast<std::byte*>(dst));
    return;
  }
  visit_dtype(dst_dtype, [&]<typename To>(std::type_identity<To>) {
    visit_dtype(src_dtype, [&]<typename From>(std::type_identity<From>) {
      convert_as<To, From>(dst, src, count, scale);
    });
  });
}

void exchange(void* out, void* slot, const void* in, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    static_cast<std::byte*>(out)[i] = static_cast<std::byte*>(slot)[i];
    static_cast<std::byte*>(slot)[i] = static_cast<const std::byte*>(in)[i];
  }
}

std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent) {
  return visit_wire(wire, [&]<typename Wire>(std::type_identity<Wire>) {
    return visit_dtype(src_dtype, [&]<typename From>(std::type_identity<From>) {
      std::size_t too_large = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double value = widen<double>(static_cast<const From*>(src)[i]);
        const double product = std::ldexp(value, exponent);
        Wire& out = static_cast<Wire*>(dst)[i];
        out = std::isfinite(value) ? pulled_in(round_to<Wire>(product)) : round_to<Wire>(product);
        too_large += out != round_to<Wire>(product);
      }
      return too_large;
    });
  });
}

std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent) {
  reference::convert(dst_dtype, dst, wire, src, count, std::ldexp(1.0, -exponent));
  return largest_magnitude(src, count);
}

std::uint16_t largest_magnitude(const void* src, std::size_t count) {
  std::uint16_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = static_cast<const std::uint16_t*>(src)[i];
    largest = std::max(largest, static_cast<std::uint16_t>(bits & 0x7fff));
  }
  return largest;
}

}  // namespace kolo::reference
