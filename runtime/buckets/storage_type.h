#pragma once

#include <cstddef>

#include "comm/base/reduction.h"

namespace kolo {

/// The type of number that stores elements of a dtype; schedules and kernels work on these numbers.
struct StorageType {
  DType dtype = DType::kFloat32;  ///< One of `kNumberDTypes`.
  std::size_t per_element = 1;    ///< Numbers in an element.

  /// A number stores itself, a complex number is stored as two floats, any other element as a byte.
  static constexpr StorageType of(DType dtype) {
    if (dtype == DType::kComplex64) return {DType::kFloat32, 2};
    if (dtype == DType::kComplex128) return {DType::kFloat64, 2};
    return {is_number(dtype) ? dtype : DType::kUInt8, 1};
  }
};

/// The operation on stored numbers that is equivalent to `op` on elements of `dtype`. Precondition:
/// `op` takes `dtype`. A premultiplied sum becomes a sum, because contributions are multiplied
/// before.
constexpr ReduceOp carried(ReduceOp op, DType dtype) {
  if (dtype == DType::kBool) return traits_of(op).of_bools;
  return op == ReduceOp::kPremulSum ? ReduceOp::kSum : op;
}

}  // namespace kolo
