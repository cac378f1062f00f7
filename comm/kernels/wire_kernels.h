#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// The range of exponents: at one end float16's largest value still stands for a float32, at the
/// other its smallest value stands for float32's smallest.
inline constexpr int kLeastWireExponent = -112;
inline constexpr int kMostWireExponent = 125;

/// Casts a tensor to a wire of 16-bit floats, scaled by a power of two: dst[i] = round(src[i] *
/// 2^exponent), to nearest even, once. A finite value that is too large becomes the largest finite
/// one of its sign; infinity and NaN stay. Returns how many were too large.
///
/// Shape:   as `convert`, which also defines NaN.
/// Before:  wire is kFloat16 or kBFloat16, the latter with exponent 0; the exponent is in the range
///          above; src_dtype is floating-point.
/// Threads: pure; any. The bits do not depend on the instruction set.
std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent);

/// The inverse: dst[i] = src[i] * 2^-exponent, exact if dst is float32. Returns the largest
/// magnitude in src as bits of the wire, which order like magnitudes: infinity or more if a value
/// is not finite. Otherwise as above.
std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent, Stores stores = Stores::kCached);

}  // namespace kolo
