#pragma once

#include <cstddef>
#include <span>

#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {

/// Writes in[0][i] + in[1][i] + ... to out[k][i] for all k, in one pass: the memory traffic of an
/// all-reduce and nothing else. An output may be one of the inputs. Streaming stores avoid reading
/// lines that are only overwritten, but send them to memory even where they would have stayed in
/// the cache.
///
/// Shape:   every stream holds `count` floats, aligned to kMemoryAlignment.
/// Threads: any.
void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores);

}  // namespace kolo::bench
