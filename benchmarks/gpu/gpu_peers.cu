#include "benchmarks/gpu/gpu_peers.h"

#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "comm/device/cuda_error.h"

namespace kolo::bench {
namespace {

constexpr int kKeyBits = 31;

std::uint32_t* words(const DeviceMemory& memory) {
  return reinterpret_cast<std::uint32_t*>(memory.data());
}

}  // namespace

CubBatchedCopy::CubBatchedCopy(Device& device, const void* const* sources, void* const* targets,
                               const std::size_t* sizes, std::uint32_t count)
    : sources_(sources), targets_(targets), sizes_(sizes), count_(count) {
  require_cuda(
      cub::DeviceMemcpy::Batched(nullptr, temporary_bytes_, sources_, targets_, sizes_, count_),
      "cub::DeviceMemcpy::Batched");
  temporary_ = device.allocate(temporary_bytes_, MemoryKind::kDevice);
}

void CubBatchedCopy::run(void* cuda_stream) {
  require_cuda(cub::DeviceMemcpy::Batched(temporary_.data(), temporary_bytes_, sources_, targets_,
                                          sizes_, count_, static_cast<cudaStream_t>(cuda_stream)),
               "cub::DeviceMemcpy::Batched");
}

CubSortPairs::CubSortPairs(Device& device, const std::uint32_t* keys, const std::uint32_t* indices,
                           std::size_t count)
    : keys_(keys),
      indices_(indices),
      count_(count),
      sorted_keys_(device.allocate(count * sizeof(std::uint32_t), MemoryKind::kDevice)),
      sorted_indices_(device.allocate(count * sizeof(std::uint32_t), MemoryKind::kDevice)) {
  require_cuda(cub::DeviceRadixSort::SortPairsDescending(
                   nullptr, temporary_bytes_, keys_, words(sorted_keys_), indices_,
                   words(sorted_indices_), count_, 0, kKeyBits),
               "cub::DeviceRadixSort::SortPairsDescending");
  temporary_ = device.allocate(temporary_bytes_, MemoryKind::kDevice);
}

void CubSortPairs::run(void* cuda_stream) {
  require_cuda(
      cub::DeviceRadixSort::SortPairsDescending(
          temporary_.data(), temporary_bytes_, keys_, words(sorted_keys_), indices_,
          words(sorted_indices_), count_, 0, kKeyBits, static_cast<cudaStream_t>(cuda_stream)),
      "cub::DeviceRadixSort::SortPairsDescending");
}

}  // namespace kolo::bench
