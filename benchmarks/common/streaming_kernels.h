#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/kernels/reduce_kernels.h"

/// Measures memory bandwidth: kernels that move the same bytes as other kernels with almost no
/// computation, in vectors as wide as this machine's. Streaming stores avoid reading lines that are
/// only overwritten, but send them to memory even if they would have stayed in the cache.
namespace kolo::bench {

/// Writes in[0][i] + in[1][i] + ... to out[k][i] for all k, in one pass: just the memory traffic of
/// an all-reduce. An output may be one of the inputs. Shape: every stream holds `count` floats;
/// streams stored past the cache begin at a cache line.
void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores);
/// Four bytes in, two bytes out: two whole vectors become one. Shape: `count` is a multiple of 64,
/// here and below.
void stream_narrow(std::uint16_t* to, const float* from, std::size_t count, Stores stores);
/// Two bytes in, four bytes out: each vector is stored twice.
void stream_widen(float* to, const std::uint16_t* from, std::size_t count, Stores stores);

}  // namespace kolo::bench
