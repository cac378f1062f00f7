#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/base/dtype.h"

namespace kolo {

/// An operation that combines the contributions of ranks.
enum class ReduceOp : std::uint8_t {
  kSum,
  kMin,
  kMax,
  kProd,
  kAverage,  ///< The sum divided by the number of ranks.
  kBitAnd,
  kBitOr,
  kBitXor,
  kPremulSum,  ///< The sum of contributions, each multiplied by a factor that its rank chooses.
};

/// The identity element of an operation. kLowest and kHighest are infinities if the dtype has them.
enum class Identity : std::uint8_t { kZero, kOne, kAllBits, kLowest, kHighest };

/// Properties of an operation. comm/kernels/combine.h defines how it combines two elements.
struct ReduceOpTraits {
  ReduceOp value;
  std::string_view names[2];  ///< Names that `parse_reduce_op` accepts; the first is printed.
  std::string_view takes;     ///< Accepted dtypes, as a list of `DTypeTraits::kind`.
  Identity identity;
  ReduceOp of_bools = ReduceOp::kSum;  ///< Equivalent operation for Booleans as bits.
  bool picks_one = false;              ///< Whether the result is one of the contributions.
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

/// Whether `op` accepts elements of `dtype`.
constexpr bool takes(ReduceOp op, DType dtype) {
  return traits_of(op).takes.find(traits_of(dtype).kind) != std::string_view::npos;
}
/// True for operations that accept all numbers: those for gradients and on devices.
constexpr bool is_number_op(ReduceOp op) {
  return takes(op, DType::kFloat32) && takes(op, DType::kInt32);
}
/// True for operations whose result is one of the contributions, so that nothing is rounded.
constexpr bool picks_one(ReduceOp op) { return traits_of(op).picks_one; }

/// All operations, for loops.
inline constexpr auto kEveryReduceOp = values_where<kReduceOps, is_value<ReduceOp>>();
/// All operations for which `is_number_op` is true.
inline constexpr auto kNumberOps = values_where<kReduceOps, is_number_op>();

/// Returns the printed name: "sum", "average", ...
std::string_view to_string(ReduceOp op);
/// Returns the operation that has the name `text`, or an empty value if there is none.
std::optional<ReduceOp> parse_reduce_op(std::string_view text);

/// The factors of a reduction. Factors other than 1 require floating-point or complex elements.
struct Scales {
  /// Factor of this rank's contribution, applied before combining. Must be equal on all ranks,
  /// except for kPremulSum, where each rank chooses its factor at each call.
  double before = 1;
  /// Factor of the result. Must be equal on all ranks. The value 1.0 / n divides exactly by n.
  double after = 1;

  friend bool operator==(const Scales& a, const Scales& b) {
    return a.before == b.before && a.after == b.after;
  }
};

/// A reduce operation with its factors and wire dtype. A ReduceOp converts to an unscaled
/// Reduction:
///
///     runtime.all_reduce("x", buffer, ReduceOp::kMax).wait();
///     runtime.all_reduce("x", buffer, {ReduceOp::kSum, {.before = 0.125}}).wait();
///     runtime.all_reduce("x", buffer, {ReduceOp::kPremulSum, {.before = my_weight}}).wait();
///
/// result = after * (before * x_0 op before * x_1 op ...). Scaled contributions are rounded to the
/// dtype before combining. In device memory, results are also rounded before `after` is applied.
struct Reduction {
  ReduceOp op;
  Scales scales;
  /// The dtype in which an all-reduce or reduce-scatter sends elements, equal on all ranks. If
  /// empty, it is the dtype of the elements. Unscaled float32 and float64 in host memory can be
  /// sent as bfloat16. Each contribution is then rounded once, and each float32 sum is rounded
  /// twice: once per node, and once between nodes.
  std::optional<DType> wire_dtype;

  // Implicit, so that a plain operation converts to a reduction.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Reduction(ReduceOp of = ReduceOp::kSum, Scales by = {},
                      std::optional<DType> wire = std::nullopt)
      : op(of), scales(by), wire_dtype(wire) {}
};

/// Describes a reduction: "sum", "sum scaled by 0.5 before and 2 after".
std::string describe(ReduceOp op, const Scales& scales);

/// Throws UsageError, which names `name`, if the operation does not accept `dtype`, or if a factor
/// other than 1 is not finite or `dtype` cannot be scaled.
void check_reduction(std::string_view name, const Reduction& reduction, DType dtype);

}  // namespace kolo
