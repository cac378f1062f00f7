#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "comm/device/cuda_error.h"
#include "comm/device/kernels/access.h"

/// Kernel launches on the current device. Errors: KoloError(kInternal) with CUDA's text.
namespace kolo::gpu {

/// Number of blocks of `kernel`, each of `threads` threads, that the current device runs at once.
template <typename... Args>
std::size_t resident_blocks(void (*kernel)(Args...), int threads) {
  int device = 0;
  int processors = 0;
  int blocks = 0;
  require_cuda(cudaGetDevice(&device), "cudaGetDevice");
  require_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
  require_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0),
               "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return static_cast<std::size_t>(processors) * static_cast<std::size_t>(blocks);
}

/// Enqueues a kernel whose blocks share `work` units round-robin. Without work it only loads the
/// kernel. `what` names it in errors.
template <typename... Args, typename... Values>
void launch(const char* what, void (*kernel)(Args...), int threads, std::size_t work,
            cudaStream_t stream, Values... values) {
  if (work == 0) {
    cudaFuncAttributes loaded;
    return require_cuda(cudaFuncGetAttributes(&loaded, kernel), what);
  }
  const unsigned blocks = access::grid_blocks(work, resident_blocks(kernel, threads));
  kernel<<<blocks, static_cast<unsigned>(threads), 0, stream>>>(values...);
  require_cuda(cudaGetLastError(), what);
}

}  // namespace kolo::gpu
