#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <memory>

#include "benchmarks/gpu/gpu_bench.h"
#include "comm/device/cuda_error.h"

namespace kolo::bench {
namespace {

/// Allocates the temporary memory of a CUB function, and returns the call. CUB returns the size of
/// that memory if it is passed a null pointer.
template <typename Function>
CubCall with_temporary(Device& device, const char* name, Function function) {
  std::size_t bytes = 0;
  require_cuda(function(nullptr, bytes, nullptr), name);
  auto memory = std::make_shared<DeviceMemory>(device.allocate(bytes, MemoryKind::kDevice));
  return [=](void* stream) mutable {
    require_cuda(function(memory->data(), bytes, static_cast<cudaStream_t>(stream)), name);
  };
}

}  // namespace

CubCall cub_batched_copy(Device& device, const void* const* sources, void* const* targets,
                         const std::size_t* sizes, std::uint32_t count) {
  return with_temporary(device, "cub::DeviceMemcpy::Batched",
                        [=](void* memory, std::size_t& bytes, cudaStream_t stream) {
                          return cub::DeviceMemcpy::Batched(memory, bytes, sources, targets, sizes,
                                                            count, stream);
                        });
}

CubCall cub_sort_pairs(Device& device, const std::uint32_t* keys, const std::uint32_t* indices,
                       std::size_t count) {
  constexpr int kKeyBits = 31;
  auto sorted = std::make_shared<DeviceMemory>(
      device.allocate(2 * count * sizeof(std::uint32_t), MemoryKind::kDevice));
  auto* const words = reinterpret_cast<std::uint32_t*>(sorted->data());
  return with_temporary(device, "cub::DeviceRadixSort::SortPairsDescending",
                        [=](void* memory, std::size_t& bytes, cudaStream_t stream) {
                          static_cast<void>(sorted);  // keeps the memory alive
                          return cub::DeviceRadixSort::SortPairsDescending(
                              memory, bytes, keys, words, indices, words + count, count, 0,
                              kKeyBits, stream);
                        });
}

}  // namespace kolo::bench
