#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"

namespace kolo {

/// Result for a finite value that exceeds the range of its 16-bit float.
enum class Overflow : std::uint8_t {
  kInfinity,  ///< As in IEEE 754, for the user's own 16-bit numbers.
  kLargest,   ///< The largest finite value of its sign, for a 16-bit wire.
};

/// How results are written. This changes no bit.
enum class Stores : std::uint8_t {
  kCached,     ///< Through the cache, for a reader that follows.
  kStreaming,  ///< Past the cache, for data that would be evicted before it is read.
};

/// outputs[k][i] = round(scale * (sources[0][i] op sources[1][i] op ...)), in the order of
/// `sources`, the same bits for every k.
///
/// Before:  dtype is one of `kNumberDTypes`, and `takes(op, dtype)` in comm/base/reduction.h.
/// Shape:   every source and output holds `count` elements of `dtype`; alignment of an element
///          suffices. An output may be one of the sources; otherwise they do not overlap.
/// Units:   count is elements.
/// Sums:    float16 and bfloat16 are accumulated in float32 and rounded once (to nearest, ties to
///          even; NaN and infinities stay, `overflow` decides about other values out of range).
///          float32 and float64 are accumulated in their own type; integers wrap, in averages too.
///          kAverage sums (the caller passes scale = 1.0 / n), and so does kPremulSum, of
///          contributions that are multiplied already. Min and max return NaN if any contribution
///          is NaN, and order -0 before +0.
/// NaN:     every NaN in a result is the quiet one with positive sign and empty payload.
/// Scale:   applied in the accumulation type before the one rounding; 1.0 changes no bit. 1.0 / n
///          divides by n, integers exactly and toward zero (see scaling.h); any other scale
///          multiplies, integers in double.
/// Stores:  a hint, used for long arrays in which no output is a source.
/// Threads: pure; any. The bits do not depend on the instruction set chosen at run time: one
///          rounding per operation, no fused multiply-add.
/// Errors:  UsageError if there is no source or no output.
void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow = Overflow::kInfinity, Stores stores = Stores::kCached);
/// As above, with one output.
inline void reduce(DType dtype, ReduceOp op, void* dst, std::span<const void* const> sources,
                   std::size_t count, double scale, Overflow overflow = Overflow::kInfinity) {
  reduce(dtype, op, std::span<void* const>(&dst, 1), sources, count, scale, overflow);
}

/// Scales elements in place, as `reduce` scales combined values.
void rescale(DType dtype, void* data, std::size_t count, double scale);

/// dst[i] = round(scale * src[i]), converted between any two of `kNumberDTypes`.
///
/// Always multiplies by the scale. Rounds as `reduce` with Overflow::kInfinity. Float to integer
/// truncates toward zero and saturates; NaN gives 0. Computes in float32 between float32 and the
/// 16-bit floats, otherwise in double. `dst == src` is allowed if both dtypes are equal. Equal
/// dtypes of any kind with scale 1.0 are copied bit by bit; if also `dst == src`, nothing is
/// written. `stores` is a hint, used for long arrays.
void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores = Stores::kCached);

/// out = slot, then slot = in, byte by byte: reads and replaces the contents of the slot in one
/// pass. The three do not overlap. `stores` is a hint for the writes to `out`, used for long
/// arrays.
void exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores);

/// Name of the instruction set in use ("AVX2", "AVX3", "NEON", ...).
const char* kernel_target();

/// Sets every element of `target`, in host memory, to the identity element of `op`: zero for a sum,
/// an average, or bitwise or and exclusive or; one for a product; all bits set for bitwise and; and
/// for a minimum or maximum the highest or lowest value, infinite where the dtype has infinities.
///
/// Before:  the dtype is one of `kNumberDTypes`, and `op` takes it.
/// Threads: pure; any.
void fill_identity(const BufferView& target, ReduceOp op);

/// Rows of a list in groups: group i has the rows positions[ends[i - 1]] to positions[ends[i] - 1],
/// at least one. Without positions, group i is just row i.
struct RowGroups {
  std::size_t count = 0;
  std::span<const std::size_t> positions = {};
  std::span<const std::size_t> ends = {};
};

/// Sums the rows of each group in their order, times `scale`, into row i of `sums`, which must not
/// overlap `rows`. A row has `width` elements of `dtype`.
///
/// Bits:   as `reduce`; a group of one row with scale 1.0 keeps its bits.
/// Before: dtype is one of `kNumberDTypes`. Pure.
void sum_rows(const RowGroups& groups, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums);

/// Copies row i of `rows` to row `indices[i]` of `table`. Indices are distinct. Pure.
void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                 std::size_t row_bytes, std::byte* table);

/// The range of exponents: at its lower end float16's largest value represents a large float32, at
/// its upper end float16's smallest value represents float32's smallest.
inline constexpr int kLeastWireExponent = -112;
inline constexpr int kMostWireExponent = 125;

/// Casts a tensor to 16-bit floats for the wire, scaled by a power of two: dst[i] = round(src[i] *
/// 2^exponent), to nearest even, once. A finite value that is too large becomes the largest finite
/// value of its sign; infinity and NaN stay. Returns how many values were too large.
///
/// Shape:   as `convert`, which also defines NaN.
/// Before:  wire is kFloat16 or kBFloat16, the latter with exponent 0; the exponent is in the range
///          above; src_dtype is floating-point.
/// Threads: pure; any. The bits do not depend on the instruction set.
std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent);

/// Casts back: dst[i] = src[i] * 2^-exponent, exact if dst is float32. Returns the largest
/// magnitude in src as bits of the wire dtype, which order like magnitudes: the bits of infinity,
/// or more, if a value is not finite. Otherwise as `to_wire`.
std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent, Stores stores = Stores::kCached);

}  // namespace kolo
