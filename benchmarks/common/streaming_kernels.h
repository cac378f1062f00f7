#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/kernels/reduce_kernels.h"

/// The rate of memory: kernels that move the bytes of other kernels with almost no work on them, in
/// vectors as wide as this machine's. Streaming stores avoid reading lines that are only
/// overwritten, but send them to memory even where they would have stayed in the cache.
namespace kolo::bench {

/// Writes in[0][i] + in[1][i] + ... to out[k][i] for all k, in one pass: the memory traffic of an
/// all-reduce and nothing else. An output may be one of the inputs. Shape: every stream holds
/// `count` floats; what is stored past the cache begins at a cache line.
void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores);
/// Four bytes in, two bytes out: whole vectors, of which two become one. Shape: `count` is a
/// multiple of 64, here and below.
void stream_narrow(std::uint16_t* to, const float* from, std::size_t count, Stores stores);
/// Two bytes in, four bytes out: each vector is stored twice.
void stream_widen(float* to, const std::uint16_t* from, std::size_t count, Stores stores);

}  // namespace kolo::bench
