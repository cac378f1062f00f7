#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"

namespace kolo {

/// Result for a finite value that exceeds the range of its 16-bit float type.
enum class Overflow : std::uint8_t {
  kInfinity,  ///< Infinity, for 16-bit tensors of the user.
  kLargest,   ///< The largest finite value of the same sign, for a 16-bit wire dtype.
};

/// How results are stored. This changes no bit of them.
enum class Stores : std::uint8_t {
  kCached,     ///< Through the cache, for data that is read soon.
  kStreaming,  ///< Bypassing the cache, for data that would be evicted before it is read.
};

/// Combines arrays: outputs[k][i] = round(scale * (sources[0][i] op sources[1][i] op ...)) for all
/// outputs k, in the order of `sources`.
///
/// Before:  dtype is one of `kNumberDTypes`, and `takes(op, dtype)` is true.
/// Shape:   every source and output holds `count` elements of `dtype`, aligned as elements. An
///          output may be one of the sources; otherwise they must not overlap.
/// Units:   count is elements.
/// Sums:    float16 and bfloat16 are accumulated in float32 and rounded once, to nearest with ties
///          to even; `overflow` decides about finite values out of range. Other types are
///          accumulated in the type itself, and integers wrap. kAverage and kPremulSum compute a
///          plain sum: the caller passes scale 1.0 / n, or multiplied contributions. Min and max
///          return NaN if any contribution is NaN, and order -0 before +0.
/// NaN:     every NaN in a result is the quiet NaN with positive sign and empty payload.
/// Scale:   applied in the accumulation type before rounding; 1.0 changes no bit. A scale 1.0 / n
///          divides by n (see scaling.h), integers toward zero. Any other scale multiplies,
///          integers in double.
/// Stores:  `stores` is a hint, used only for long arrays in which no output is a source.
/// Threads: pure; any. The bits do not depend on the instruction set, which is chosen at run time.
/// Errors:  UsageError if there is no source or no output.
void reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow = Overflow::kInfinity, Stores stores = Stores::kCached);
/// Combines arrays into one output.
inline void reduce(DType dtype, ReduceOp op, void* dst, std::span<const void* const> sources,
                   std::size_t count, double scale, Overflow overflow = Overflow::kInfinity) {
  reduce(dtype, op, std::span<void* const>(&dst, 1), sources, count, scale, overflow);
}

/// Scales elements in place, as `reduce` scales its results.
void rescale(DType dtype, void* data, std::size_t count, double scale);

/// Converts between any two of `kNumberDTypes`: dst[i] = round(scale * src[i]).
///
/// The scale always multiplies. Rounds as `reduce` with Overflow::kInfinity. Conversion to integers
/// truncates toward zero and saturates; NaN gives 0. Computes in float32 between float32 and the
/// 16-bit floats, otherwise in double. `dst == src` is allowed if the dtypes are equal. If the
/// dtypes are equal (of any kind) and the scale is 1.0, copies the bits. `stores` is a hint, used
/// only for long arrays.
void convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores = Stores::kCached);

/// Copies `slot` to `out` and `in` to `slot` in one pass. The three ranges of `bytes` bytes must
/// not overlap. `stores` is a hint for the writes to `out`, used only for long arrays.
void exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores);

/// Returns the name of the instruction set in use ("AVX2", "AVX3", "NEON", ...).
const char* kernel_target();

/// Sets every element of `target`, in host memory, to the identity element of `op`; see
/// `ReduceOpTraits::identity`.
///
/// Before:  the dtype is one of `kNumberDTypes`, and `op` accepts it.
/// Threads: pure; any.
void fill_identity(const BufferView& target, ReduceOp op);

/// Groups of rows of a matrix. Group i consists of the rows positions[k] for ends[i - 1] <= k <
/// ends[i], at least one row (ends[-1] counts as 0). If `positions` is empty, group i is row i.
struct RowGroups {
  std::size_t count = 0;
  Span<const std::size_t> positions = {};
  Span<const std::size_t> ends = {};
};

/// Sums the rows of each group i in order, multiplies the sum by `scale`, and writes it to row i of
/// `sums`. A row has `width` elements of `dtype`. `sums` and `rows` must not overlap.
///
/// Bits:   equal those of `reduce`; a group of one row with scale 1.0 is copied.
/// Before: dtype is one of `kNumberDTypes`. Pure.
void sum_rows(const RowGroups& groups, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums);

/// Copies row i of `rows` to row `indices[i]` of `table`. Indices must be distinct. Pure.
void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                 std::size_t row_bytes, std::byte* table);

/// Range of the exponents of `to_wire`. At the lower end, the largest float16 represents a large
/// float32; at the upper end, the smallest float16 represents the smallest float32.
inline constexpr int kLeastWireExponent = -112;
inline constexpr int kMostWireExponent = 125;

/// Casts elements to a 16-bit wire dtype, scaled by a power of two: dst[i] = round(src[i] *
/// 2^exponent), to nearest even. A finite value that is too large becomes the largest finite value
/// of the same sign. Infinity and NaN stay. Returns the number of values that were too large.
///
/// Shape:   `src` and `dst` have `count` elements. NaN is converted as by `convert`.
/// Before:  `wire` is kFloat16, or kBFloat16 with exponent 0; `exponent` is in the range above;
///          `src_dtype` is floating-point.
/// Threads: pure; any. The bits do not depend on the instruction set.
std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent);

/// Reverses `to_wire`: dst[i] = src[i] * 2^-exponent, which is exact if dst is float32. Returns the
/// largest magnitude in src as bits of the wire dtype: at least the bits of infinity if a value is
/// not finite. Preconditions and threads are those of `to_wire`.
std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent, Stores stores = Stores::kCached);

}  // namespace kolo
