#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/base/dtype.h"

namespace kolo {

/// How contributions are combined.
enum class ReduceOp : std::uint8_t {
  kSum,
  kMin,
  kMax,
  kProd,
  kAverage,  ///< The sum divided by the size of the group.
  kBitAnd,
  kBitOr,
  kBitXor,
  kPremulSum,  ///< The sum of contributions, each multiplied by its rank's own factor.
};

/// The identity element of an operation. Lowest and highest are infinite if the dtype has
/// infinities.
enum class Identity : std::uint8_t { kZero, kOne, kAllBits, kLowest, kHighest };

/// Properties of an operation. comm/kernels/combine.h defines how it combines two elements.
struct ReduceOpTraits {
  ReduceOp value;
  std::string_view names[2];  ///< The first name is printed, both are accepted.
  std::string_view takes;     ///< Kinds of dtypes that it accepts; see DTypeTraits.
  Identity identity;
  ReduceOp of_bools = ReduceOp::kSum;  ///< If it accepts Booleans: the equivalent operation on
                                       ///< their bits.
  bool picks_one = false;  ///< The result is one of the contributions, so no rounding occurs.
};

/// One row per operation, in the order of the enumeration.
inline constexpr ReduceOpTraits kReduceOps[] = {
    {ReduceOp::kSum, {"sum"}, "fibc", Identity::kZero, ReduceOp::kBitOr},
    {ReduceOp::kMin, {"min"}, "fib", Identity::kHighest, ReduceOp::kBitAnd, true},
    {ReduceOp::kMax, {"max"}, "fib", Identity::kLowest, ReduceOp::kBitOr, true},
    {ReduceOp::kProd, {"prod"}, "fib", Identity::kOne, ReduceOp::kBitAnd},
    {ReduceOp::kAverage, {"average", "avg"}, "fic", Identity::kZero},
    {ReduceOp::kBitAnd, {"bit_and", "band"}, "ib", Identity::kAllBits, ReduceOp::kBitAnd},
    {ReduceOp::kBitOr, {"bit_or", "bor"}, "ib", Identity::kZero, ReduceOp::kBitOr},
    {ReduceOp::kBitXor, {"bit_xor", "bxor"}, "ib", Identity::kZero, ReduceOp::kBitXor},
    {ReduceOp::kPremulSum, {"premul_sum"}, "fc", Identity::kZero}};

constexpr const ReduceOpTraits& traits_of(ReduceOp op) {
  return kReduceOps[static_cast<std::size_t>(op)];
}

/// Whether `op` is defined on elements of `dtype`.
constexpr bool takes(ReduceOp op, DType dtype) {
  return traits_of(op).takes.find(traits_of(dtype).kind) != std::string_view::npos;
}
/// True for operations defined on all numbers: the ones for gradients and on devices.
constexpr bool is_number_op(ReduceOp op) {
  return takes(op, DType::kFloat32) && takes(op, DType::kInt32);
}
/// True for operations whose result is one of the contributions, without rounding.
constexpr bool picks_one(ReduceOp op) { return traits_of(op).picks_one; }

/// Every operation, for loops.
inline constexpr auto kAllReduceOps = values_where<kReduceOps, is_value<ReduceOp>>();
/// The operations for which `is_number_op` holds.
inline constexpr auto kNumberOps = values_where<kReduceOps, is_number_op>();

/// "sum", "average", ...
std::string_view to_string(ReduceOp op);
/// The value with one of the names in `kReduceOps`; empty for any other text.
std::optional<ReduceOp> parse_reduce_op(std::string_view text);

/// Factors of a reduction. Only floating-point and complex elements can be scaled.
struct Scales {
  /// Multiplies each contribution before it is combined. Equal on all ranks, except in a
  /// premultiplied sum, where each rank has its own factor and may change it at each call.
  double before = 1;
  /// Multiplies the result; 1.0 / n divides it by n. Equal on all ranks.
  double after = 1;

  friend bool operator==(const Scales& a, const Scales& b) {
    return a.before == b.before && a.after == b.after;
  }
};

/// An operation with its scales. It converts from a plain operation, which is then unscaled:
///
///     runtime.all_reduce("x", buffer, ReduceOp::kMax).wait();
///     runtime.all_reduce("x", buffer, {ReduceOp::kSum, {.before = 0.125}}).wait();
///     runtime.all_reduce("x", buffer, {ReduceOp::kPremulSum, {.before = my_weight}}).wait();
///
/// result = after * (before * x_0 op before * x_1 op ...). Scaled contributions are rounded to the
/// dtype before they are combined; in device memory, results are also rounded before the final
/// scale.
struct Reduction {
  ReduceOp op;
  Scales scales;
  /// The dtype on the wire for all-reduce and reduce-scatter, equal on all ranks; empty: the dtype
  /// of the elements. Unscaled float32 and float64 in host memory can be sent as bfloat16. Each
  /// contribution is rounded once. Sums are float32 and are rounded too: once per node, and once
  /// between nodes. The casts are part of the copies.
  std::optional<DType> wire_dtype;

  // Implicit, so that an operation alone is a reduction.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Reduction(ReduceOp of = ReduceOp::kSum, Scales by = {},
                      std::optional<DType> wire = std::nullopt)
      : op(of), scales(by), wire_dtype(wire) {}
};

/// "sum", "sum scaled by 0.5 before and 2 after".
std::string describe(ReduceOp op, const Scales& scales);

/// Throws UsageError, which names `name`, unless the operation accepts `dtype`, the scales are
/// finite, and scaled elements can be scaled.
void check_reduction(std::string_view name, const Reduction& reduction, DType dtype);

}  // namespace kolo
