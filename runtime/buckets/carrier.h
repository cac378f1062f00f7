#pragma once

#include <cstddef>

#include "comm/base/dtype.h"

namespace kolo {

/// The numbers that carry elements of a dtype, which schedules and kernels work on.
struct Carrier {
  DType dtype = DType::kFloat32;  ///< One of `kNumberDTypes`.
  std::size_t per_element = 1;    ///< Numbers in an element.

  /// A number is its own carrier, a complex number is two floats, anything else is a byte.
  static constexpr Carrier of(DType dtype) {
    if (dtype == DType::kComplex64) return {DType::kFloat32, 2};
    if (dtype == DType::kComplex128) return {DType::kFloat64, 2};
    return {is_number(dtype) ? dtype : DType::kUInt8, 1};
  }
};

/// The operation on carriers that does what `op` does on elements of `dtype`. Before: `op` takes
/// `dtype`. A premultiplied sum becomes a sum, because contributions are multiplied beforehand.
constexpr ReduceOp carried(ReduceOp op, DType dtype) {
  if (dtype != DType::kBool) return op == ReduceOp::kPremulSum ? ReduceOp::kSum : op;
  // A bool is a byte that is 0 or 1.
  switch (op) {
    case ReduceOp::kMin:
    case ReduceOp::kProd:
    case ReduceOp::kBitAnd:
      return ReduceOp::kBitAnd;
    case ReduceOp::kBitXor:
      return ReduceOp::kBitXor;
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
    case ReduceOp::kAverage:
    case ReduceOp::kPremulSum:
      break;
  }
  return ReduceOp::kBitOr;
}

}  // namespace kolo
