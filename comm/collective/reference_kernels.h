#pragma once

#include <cstddef>
#include <span>

#include "comm/base/dtype.h"

/// The kernels of `reduce_kernels.h`, written to be read: one element at a time, in plain C++. They
/// define every bit; the vector kernels are tested against them. Rare combinations (integers that
/// are scaled or converted, float64 to 16 bit) and machines without vectors run these.
namespace kolo::reference {

/// The contract of `kolo::reduce`.
void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale);

/// The same with one output.
inline void reduce(DType dtype, ReduceOp op, void* dst, std::span<const void* const> sources,
                   std::size_t count, double scale) {
  reference::reduce(dtype, op, std::span<void* const>(&dst, 1), sources, count, scale);
}

/// The contract of `kolo::convert`.
void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale);

}  // namespace kolo::reference
