#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// Smallest size in bytes for a block copy. It is faster than vector stores from this size on, and
/// slower at a quarter of it.
inline constexpr std::size_t kLeastBlockBytes = std::size_t{64} << 10;

/// Whether the processor reports a fast instruction for block copies (REP MOVSB).
bool has_block_copy();

/// Copies `bytes` bytes by that instruction. Unlike vector stores, it writes whole cache lines
/// without first reading their old contents. The ranges must not overlap.
///
void block_copy(void* dst, const void* src, std::size_t bytes);

/// Bytes of a result for which a kernel prefetches cache lines for writing: as many as a core can
/// have in flight.
inline constexpr std::size_t kOwnedBytes = 1024;

/// Prefetches the cache lines of [begin, end) for writing. Stores alone keep fewer lines in flight,
/// which halves the rate if another core has read the lines last.
inline void prefetch_for_write(const void* begin, const void* end) {
  constexpr std::size_t kLine = 64;
  for (auto* line = static_cast<const std::byte*>(begin); line < end; line += kLine) {
#if defined(__x86_64__)
    // Assembly, because compilers turn the builtin into a prefetch for reading. The instruction
    // does nothing on processors that lack it.
    asm volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }
}

}  // namespace kolo

/// Vector implementations of the kernels in reduce_kernels.h, for the combinations that gradients
/// use. The instruction set is chosen at run time. The functions have the contracts of
/// `kolo::reference`. They return false or an empty value, without effect, if this machine has no
/// vector kernel for the arguments.
namespace kolo::simd {

bool reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow, Stores stores);

bool convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores);

bool exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores);

std::optional<std::size_t> to_wire(DType wire, void* dst, DType src_dtype, const void* src,
                                   std::size_t count, int exponent);
std::optional<std::uint16_t> from_wire(DType dst_dtype, void* dst, DType wire, const void* src,
                                       std::size_t count, int exponent, Stores stores);

/// Returns the name of the instruction set in use.
const char* target();

}  // namespace kolo::simd
