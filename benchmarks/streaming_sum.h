#pragma once

#include <cstddef>
#include <span>

namespace kolo::bench {

/// Writes in[0][i] + in[1][i] + ... to out[k][i] for all k, in one pass: what memory has to do for
/// an all-reduce and nothing else. An output may be one of the inputs.
///
/// Shape:   every stream holds `count` floats, aligned to kMemoryAlignment.
/// Threads: any.
void streaming_sum(std::span<const float* const> in, std::span<float* const> out,
                   std::size_t count);

}  // namespace kolo::bench
