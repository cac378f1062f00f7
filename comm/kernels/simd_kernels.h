#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/base/dtype.h"
#include "comm/kernels/reduce_kernels.h"

/// The vector kernels behind `reduce_kernels.h` and `wire_kernels.h`, for the combinations that
/// gradients use. The instruction set is chosen at run time.
namespace kolo::simd {

/// The contract of `reference::reduce`. Returns false without an effect if this machine has no
/// vector kernel for these arguments.
bool reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow, Stores stores);

/// The contract of `reference::convert`. Returns false without an effect if this machine has no
/// vector kernel for these arguments.
bool convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores);

/// The contract of `reference::exchange`. Returns false without an effect if this machine has no
/// vector kernel.
bool exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores);

/// The contracts of `kolo::to_wire` and `kolo::from_wire`; empty if this machine has no vector
/// kernel for these arguments.
std::optional<std::size_t> to_wire(DType wire, void* dst, DType src_dtype, const void* src,
                                   std::size_t count, int exponent);
std::optional<std::uint16_t> from_wire(DType dst_dtype, void* dst, DType wire, const void* src,
                                       std::size_t count, int exponent, Stores stores);

/// Name of the instruction set in use.
const char* target();

}  // namespace kolo::simd
