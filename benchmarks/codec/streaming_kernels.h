#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/kernels/reduce_kernels.h"

/// The rate of memory: kernels that move the bytes of other kernels with almost no work on them, in
/// vectors as wide as this machine's. Shape: `count` is a multiple of 64.
namespace kolo::bench {

/// in_out[i] += in[i]: two loads and a store.
void stream_add(float* in_out, const float* in, std::size_t count);
/// sum[i] = a[i] + b[i]: two loads and a store elsewhere.
/// Shape: what is stored past the cache begins at a cache line.
void stream_sum(float* sum, const float* a, const float* b, std::size_t count, Stores stores);
/// Four bytes in, two bytes out: whole vectors, of which two become one.
void stream_narrow(std::uint16_t* to, const float* from, std::size_t count, Stores stores);
/// Two bytes in, four bytes out: each vector is stored twice.
void stream_widen(float* to, const std::uint16_t* from, std::size_t count, Stores stores);

}  // namespace kolo::bench
