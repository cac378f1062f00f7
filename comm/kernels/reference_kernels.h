#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"

/// Reference implementations of the kernels in reduce_kernels.h: one element at a time, in plain
/// C++. They define every bit; the vector kernels are tested against them. They also run for rare
/// combinations (scaled or converted integers, float64 to 16 bits) and on machines without vector
/// instructions. The functions have the contracts of the functions of the same name in
/// reduce_kernels.h.
namespace kolo::reference {

void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow = Overflow::kInfinity);

inline void reduce(DType dtype, ReduceOp op, void* dst, std::span<const void* const> sources,
                   std::size_t count, double scale, Overflow overflow = Overflow::kInfinity) {
  reference::reduce(dtype, op, std::span<void* const>(&dst, 1), sources, count, scale, overflow);
}

void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale);

void exchange(void* out, void* slot, const void* in, std::size_t bytes);

std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent);
std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent);
/// Returns the largest magnitude of `count` 16-bit floats, as bits.
std::uint16_t largest_magnitude(const void* src, std::size_t count);

}  // namespace kolo::reference
