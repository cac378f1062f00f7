#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/kernels/reduce_kernels.h"

/// Kernels that measure memory bandwidth: each moves the same bytes as one of Kolo's kernels but
/// computes almost nothing, in the widest vectors of this machine. A streaming store does not read
/// the cache line that it overwrites, but it always writes to memory, even if the line would have
/// stayed in the cache.
namespace kolo::bench {

/// Writes in[0][i] + in[1][i] + ... to out[k][i] for all k, in one pass: the memory traffic of an
/// all-reduce. An output may be one of the inputs. Shape: every stream holds `count` floats;
/// outputs of streaming stores begin at a cache line.
void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores);
/// Reads floats and writes half as many bytes, combining two vectors into one. Shape: `count` is a
/// multiple of 64.
void stream_narrow(std::uint16_t* to, const float* from, std::size_t count, Stores stores);
/// Reads 16-bit elements and writes twice as many bytes, storing each vector twice. Shape: as
/// above.
void stream_widen(float* to, const std::uint16_t* from, std::size_t count, Stores stores);

}  // namespace kolo::bench
