#pragma once

#include <cstddef>
#include <span>

#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {

/// Writes in[0][i] + in[1][i] + ... to out[k][i] for all k, in one pass: what memory has to do for
/// an all-reduce and nothing else. An output may be one of the inputs. Streaming stores spare
/// reading lines that are only overwritten, but send them to memory even where they would have
/// stayed.
///
/// Shape:   every stream holds `count` floats, aligned to kMemoryAlignment.
/// Threads: any.
void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores);

}  // namespace kolo::bench
