#pragma once

#include <cstddef>

#include "comm/base/reduction.h"

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
  if (dtype == DType::kBool) return traits_of(op).of_bools;
  return op == ReduceOp::kPremulSum ? ReduceOp::kSum : op;
}

}  // namespace kolo
