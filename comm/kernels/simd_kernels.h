#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// From this size on, a block copy is faster than vectors; at a quarter of this size it is slower.
inline constexpr std::size_t kLeastBlockBytes = std::size_t{64} << 10;

/// Whether the processor reports a fast instruction for copying blocks.
bool has_block_copy();

/// dst = src, by that instruction: it writes whole lines without reading their old contents first,
/// unlike vector stores through the cache. The ranges do not overlap.
///
/// Before: has_block_copy().
void block_copy(void* dst, const void* src, std::size_t bytes);

/// Bytes of a result whose cache lines a kernel requests for writing in advance: as many as a core
/// can have in flight.
inline constexpr std::size_t kOwnedBytes = 1024;

/// Prefetches the lines of [begin, end) for writing. Stores alone keep fewer lines in flight: lines
/// last read by another core then arrive at half the rate.
inline void prefetch_for_write(const void* begin, const void* end) {
  constexpr std::size_t kLine = 64;
  for (auto* line = static_cast<const std::byte*>(begin); line < end; line += kLine) {
#if defined(__x86_64__)
    // The instruction does nothing on processors that lack it. Compilers turn the builtin into a
    // prefetch for reading.
    asm volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }
}

}  // namespace kolo

/// The vector kernels behind `reduce_kernels.h`, for the combinations that gradients use. The
/// instruction set is chosen at run time.
namespace kolo::simd {

/// As `reference::reduce`. Returns false, without effect, if this machine has no vector kernel for
/// these arguments.
bool reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow, Stores stores);

/// As `reference::convert`. Returns false, without effect, if this machine has no vector kernel for
/// these arguments.
bool convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores);

/// As `reference::exchange`. Returns false, without effect, if this machine has no vector kernel.
bool exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores);

/// As `kolo::to_wire` and `kolo::from_wire`; empty if this machine has no vector kernel for these
/// arguments.
std::optional<std::size_t> to_wire(DType wire, void* dst, DType src_dtype, const void* src,
                                   std::size_t count, int exponent);
std::optional<std::uint16_t> from_wire(DType dst_dtype, void* dst, DType wire, const void* src,
                                       std::size_t count, int exponent, Stores stores);

/// Name of the instruction set in use.
const char* target();

}  // namespace kolo::simd
