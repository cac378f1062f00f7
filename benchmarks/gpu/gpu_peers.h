#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "comm/device/device.h"

/// Peers for the same operations: CUB, in the order of its own arguments. All pointers are device
/// memory; each call of what is returned enqueues on a cudaStream_t.
namespace kolo::bench {

using CubCall = std::function<void(void* cuda_stream)>;

/// cub::DeviceMemcpy::Batched: copies sizes[i] bytes from sources[i] to targets[i].
CubCall cub_batched_copy(Device& device, const void* const* sources, void* const* targets,
                         const std::size_t* sizes, std::uint32_t count);
/// cub::DeviceRadixSort::SortPairsDescending: all elements by magnitude, of which the first k are
/// the answer. Keys are 31-bit magnitudes.
CubCall cub_sort_pairs(Device& device, const std::uint32_t* keys, const std::uint32_t* indices,
                       std::size_t count);

}  // namespace kolo::bench
