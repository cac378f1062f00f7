#include "comm/collective/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/base/visit_dtype.h"

namespace kolo::reference {
namespace {

using Outputs = std::span<void* const>;
using Sources = std::span<const void* const>;

template <typename T>
constexpr bool kIsHalf = std::same_as<T, Float16> || std::same_as<T, BFloat16>;

/// The type in which contributions of T are combined.
template <typename T>
using Accum = std::conditional_t<kIsHalf<T>, float, T>;

/// The type in which a value is scaled between From and To.
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

/// Truncates toward zero and saturates; NaN gives 0.
template <std::integral T>
T to_integer(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(kMin)) return kMin;
  if (value >= static_cast<double>(kMax)) return kMax;
  return static_cast<T>(value);
}

/// The one rounding, from the type that was computed in to the type that is stored. Every NaN
/// becomes the same one, because which operand's NaN an instruction hands on differs by machine.
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

template <typename T>
T scaled(Accum<T> value, double scale) {
  if constexpr (std::integral<T>) {
    return scale == 1.0 ? value : to_integer<T>(static_cast<double>(value) * scale);
  } else {
    return round_to<T>(value * static_cast<Accum<T>>(scale));
  }
}

// Integers wrap: unsigned arithmetic has no overflow.
struct Sum {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::integral<A>) {
      using Unsigned = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::integral<A>) {
      using Unsigned = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    } else {
      return a * b;
    }
  }
};

// IEEE 754-2019 minimum and maximum: NaN if either is NaN, and -0 < +0, so that the result does not
// depend on the order of contributions.
struct Min {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::floating_point<A>) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
      if (a == b) return std::signbit(a) ? a : b;
    }
    return b < a ? b : a;
  }
};

struct Max {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::floating_point<A>) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
      if (a == b) return std::signbit(a) ? b : a;
    }
    return b > a ? b : a;
  }
};

template <typename T, typename Op>
void reduce_as(Outputs outputs, Sources sources, std::size_t count, double scale) {
  for (std::size_t i = 0; i < count; ++i) {
    auto accum = widen<Accum<T>>(static_cast<const T*>(sources[0])[i]);
    for (const void* source : sources.subspan(1)) {
      accum = Op::apply(accum, widen<Accum<T>>(static_cast<const T*>(source)[i]));
    }
    const T result = scaled<T>(accum, scale);
    for (void* output : outputs) static_cast<T*>(output)[i] = result;
  }
}

template <typename T>
void reduce_as(ReduceOp op, Outputs outputs, Sources sources, std::size_t count, double scale) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return reduce_as<T, Sum>(outputs, sources, count, scale);
    case ReduceOp::kProd:
      return reduce_as<T, Prod>(outputs, sources, count, scale);
    case ReduceOp::kMin:
      return reduce_as<T, Min>(outputs, sources, count, scale);
    case ReduceOp::kMax:
      return reduce_as<T, Max>(outputs, sources, count, scale);
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

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale) {
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    reduce_as<T>(op, outputs, sources, count, scale);
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

}  // namespace kolo::reference
