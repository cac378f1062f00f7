#pragma once

#include <cstddef>

namespace kolo {

/// From this size on a block copy is faster than vectors; at a quarter of it, slower.
inline constexpr std::size_t kLeastBlockBytes = std::size_t{64} << 10;

/// Whether the processor says that its own instruction for copying blocks is fast.
bool has_block_copy();

/// dst = src, by that instruction: it writes whole lines without reading first what they replace,
/// which vector stores through the cache do. The two do not overlap.
///
/// Before: has_block_copy().
void block_copy(void* dst, const void* src, std::size_t bytes);

}  // namespace kolo
