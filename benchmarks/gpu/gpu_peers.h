#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/device/device.h"

/// Peers for the same operations: CUB, in the order of its own arguments. All pointers are device
/// memory; each call enqueues on a cudaStream_t.
namespace kolo::bench {

/// cub::DeviceMemcpy::Batched: copies sizes[i] bytes from sources[i] to targets[i].
class CubBatchedCopy {
 public:
  CubBatchedCopy(Device& device, const void* const* sources, void* const* targets,
                 const std::size_t* sizes, std::uint32_t count);
  void run(void* cuda_stream);

 private:
  const void* const* sources_;
  void* const* targets_;
  const std::size_t* sizes_;
  std::uint32_t count_;
  std::size_t temporary_bytes_ = 0;
  DeviceMemory temporary_;
};

/// cub::DeviceRadixSort::SortPairsDescending: all elements by magnitude, of which the first k are
/// the answer. Keys are 31-bit magnitudes.
class CubSortPairs {
 public:
  CubSortPairs(Device& device, const std::uint32_t* keys, const std::uint32_t* indices,
               std::size_t count);
  void run(void* cuda_stream);

 private:
  const std::uint32_t* keys_;
  const std::uint32_t* indices_;
  std::size_t count_;
  DeviceMemory sorted_keys_, sorted_indices_;
  std::size_t temporary_bytes_ = 0;
  DeviceMemory temporary_;
};

}  // namespace kolo::bench
