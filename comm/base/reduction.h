#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/base/dtype.h"

namespace kolo {

/// Factors of a reduction. Only floating-point and complex elements can be scaled.
struct Scales {
  /// Multiplies each contribution before contributions are combined. Equal on all ranks, except in
  /// a premultiplied sum, where each rank has its own and may change it at each call.
  double before = 1;
  /// Multiplies the result; 1.0 / n divides it by n. Equal on all ranks.
  double after = 1;

  friend bool operator==(const Scales& a, const Scales& b) {
    return a.before == b.before && a.after == b.after;
  }
};

/// An operation with its scales. An operation alone is a reduction that scales nothing:
///
///     runtime.all_reduce("x", buffer, ReduceOp::kMax).wait();
///     runtime.all_reduce("x", buffer, {ReduceOp::kSum, {.before = 0.125}}).wait();
///     runtime.all_reduce("x", buffer, {ReduceOp::kPremulSum, {.before = my_weight}}).wait();
///
/// result = after * (before * x_0 op before * x_1 op ...). Scaled contributions are rounded to the
/// dtype before they are combined; in device memory so are results before they are multiplied.
struct Reduction {
  ReduceOp op;
  Scales scales;
  /// The type that all-reduce and reduce-scatter send, equal on all ranks; empty: the elements'.
  /// float32 and float64 in host memory, not scaled, travel as bfloat16. Each contribution is
  /// rounded once, and so are float32 sums: those of nodes, then theirs. Copies do the casts.
  std::optional<DType> wire_dtype;

  // Implicit, so that an operation alone is a reduction.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Reduction(ReduceOp of = ReduceOp::kSum, Scales by = {},
                      std::optional<DType> wire = std::nullopt)
      : op(of), scales(by), wire_dtype(wire) {}
};

/// Whether `op` is defined on elements of `dtype`:
///
///                        float*   int*, uint8   bool   complex*   float8_*
///   sum                    x           x        or        x
///   average                x           x                  x
///   min, max, prod         x           x       and, or, and
///   bit_and, or, xor                   x         x
///   premul_sum             x                              x
constexpr bool takes(ReduceOp op, DType dtype) {
  const bool is_bool = dtype == DType::kBool;
  const bool is_integer = is_number(dtype) && !is_float(dtype);
  switch (op) {
    case ReduceOp::kSum:
      return is_number(dtype) || is_bool || is_complex(dtype);
    case ReduceOp::kAverage:
      return is_number(dtype) || is_complex(dtype);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kProd:
      return is_number(dtype) || is_bool;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return is_integer || is_bool;
    case ReduceOp::kPremulSum:
      return is_float(dtype) || is_complex(dtype);
  }
  return false;
}

/// "sum", "sum scaled by 0.5 before and 2 after".
std::string describe(ReduceOp op, const Scales& scales);

/// Throws UsageError, which names `name`, unless the operation takes `dtype`, and the scales are
/// finite and of elements that can be scaled.
void check_reduction(std::string_view name, const Reduction& reduction, DType dtype);

}  // namespace kolo
