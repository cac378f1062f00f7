#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// Exponents at which float16's largest value still stands for a float32, and its smallest one for
/// float32's smallest.
inline constexpr int kLeastWireExponent = -112;
inline constexpr int kMostWireExponent = 125;

/// The casts between tensors and a wire of 16-bit floats, on which they travel multiplied by a
/// power of two: dst[i] = round(src[i] * 2^exponent), to nearest even, once. A finite value that is
/// too large becomes the largest finite one of its sign; infinity and NaN stay so. Returns how many
/// were too large.
///
/// Shape:   as `convert`, which also says what NaN looks like.
/// Before:  wire is kFloat16 or kBFloat16, the latter with exponent 0; the exponent is one of the
///          range above; src_dtype is a float.
/// Threads: pure; any. The bits do not depend on the instruction set.
std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent);

/// The way back: dst[i] = src[i] * 2^-exponent, exactly if dst is float32. Returns the largest
/// magnitude in src as bits of the wire, which order like magnitudes: at least those of infinity if
/// one is not finite. Otherwise as above.
std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent, Stores stores = Stores::kCached);

}  // namespace kolo
