#pragma once

#include <cstddef>
#include <cstdint>

/// What memory gives: kernels that move the bytes of others with next to no work on them, as wide
/// as this machine's vectors.
namespace kolo::bench {

/// in_out[i] += in[i]: two loads and a store.
void stream_add(float* in_out, const float* in, std::size_t count);
/// sum[i] = a[i] + b[i]: two loads and a store elsewhere.
void stream_sum(float* sum, const float* a, const float* b, std::size_t count);
/// Four bytes in, two bytes out, by dropping the upper ones.
void stream_narrow(std::uint16_t* to, const std::uint32_t* from, std::size_t count);
/// Two bytes in, four bytes out.
void stream_widen(std::uint32_t* to, const std::uint16_t* from, std::size_t count);

}  // namespace kolo::bench
