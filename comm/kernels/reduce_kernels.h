#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// What becomes of a finite result that its 16-bit float cannot hold.
enum class Overflow : std::uint8_t {
  kInfinity,  ///< As IEEE 754 has it: the user's own 16-bit numbers.
  kLargest,   ///< The largest finite value of its sign: on a wire that was chosen for them.
};

/// outputs[k][i] = round(scale * (sources[0][i] op sources[1][i] op ...)), in the order of
/// `sources`, the same bits for every k.
///
/// Shape:  every source and output holds `count` elements of `dtype`; alignment of an element
///         suffices. An output may be one of the sources; otherwise they do not overlap.
/// Units:  count is elements.
/// Sums:   float16 and bfloat16 are accumulated in float32 and rounded once (to nearest, ties to
///         even; NaN and infinities stay so, `overflow` says what becomes of the rest); float32,
///         float64 in their own type; integers wrap. kAverage sums (the caller passes scale = 1 /
///         n). Min and max return NaN if any contribution is NaN, and take -0 to be less than +0.
/// NaN:    every NaN that comes out is the quiet one with positive sign and empty payload.
/// Scale:  applied in the accumulation type (integers: in double, truncated toward zero) before the
///         one rounding; 1.0 changes no bit.
/// Threads: pure; any. The bits do not depend on the instruction set chosen at run time: one
///         rounding per operation, no fused multiply-add.
/// Errors: UsageError if there is no source or no output.
void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow = Overflow::kInfinity);
/// The same with one output.
inline void reduce(DType dtype, ReduceOp op, void* dst, std::span<const void* const> sources,
                   std::size_t count, double scale, Overflow overflow = Overflow::kInfinity) {
  reduce(dtype, op, std::span<void* const>(&dst, 1), sources, count, scale, overflow);
}

/// How results reach memory; the bits are the same.
enum class Stores : std::uint8_t {
  kCached,     ///< For whoever reads them next.
  kStreaming,  ///< Past the cache, which what is written would leave before it is read.
};

/// dst[i] = round(scale * src[i]), converted between any two dtypes of `dtype.h`.
///
/// Same rounding rules as `reduce` with Overflow::kInfinity; float to integer truncates toward zero
/// and saturates, NaN gives 0. Computes in float32 between float32 and the 16-bit floats, else in
/// double. `dst == src` is allowed when both dtypes are equal. Equal dtypes and scale 1.0 copy
/// bits. `stores` is a wish, which kernels of long arrays grant.
void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores = Stores::kCached);

/// out = slot, and then slot = in, byte by byte: what is in the slot is read and replaced in one
/// pass. The three do not overlap. `stores` is a wish for what goes to `out`, which long arrays
/// grant.
void exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores);

/// Name of the instruction set that the kernels use on this machine ("AVX2", "AVX3", "NEON", ...).
const char* kernel_target();

}  // namespace kolo
