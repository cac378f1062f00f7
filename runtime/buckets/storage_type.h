#pragma once

#include <cstddef>

#include "comm/base/reduction.h"

namespace kolo {

/// The number type that stores elements of a dtype. Schedules and kernels work on these numbers.
struct StorageType {
  DType dtype = DType::kFloat32;  ///< One of `kNumberDTypes`.
  std::size_t per_element = 1;    ///< Numbers in an element.

  /// Returns the storage type: a number stores itself, a complex number is two floats, any other
  /// element is one byte.
  static constexpr StorageType of(DType dtype) {
    if (dtype == DType::kComplex64) return {DType::kFloat32, 2};
    if (dtype == DType::kComplex128) return {DType::kFloat64, 2};
    return {is_number(dtype) ? dtype : DType::kUInt8, 1};
  }
};

/// Returns the operation on stored numbers that is equivalent to `op` on elements of `dtype`.
/// Precondition: `op` takes `dtype`. A premultiplied sum becomes a sum, because the packer scales
/// contributions.
constexpr ReduceOp carried(ReduceOp op, DType dtype) {
  if (dtype == DType::kBool) return traits_of(op).of_bools;
  return op == ReduceOp::kPremulSum ? ReduceOp::kSum : op;
}

}  // namespace kolo
