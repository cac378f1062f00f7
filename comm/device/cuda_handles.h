#pragma once

#include <cuda_runtime_api.h>

#include "comm/base/unique_handle.h"
#include "comm/device/cuda_error.h"

namespace kolo {

struct CudaStreamTraits {
  using Value = cudaStream_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value stream) noexcept {
    log_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
};
using CudaStreamHandle = UniqueHandle<CudaStreamTraits>;

struct CudaEventTraits {
  using Value = cudaEvent_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value event) noexcept { log_cuda(cudaEventDestroy(event), "cudaEventDestroy"); }
};
using CudaEventHandle = UniqueHandle<CudaEventTraits>;

/// A stream of the current device that does not synchronise with the legacy default stream. Errors:
/// those of `require_cuda`.
inline CudaStreamHandle make_cuda_stream() {
  cudaStream_t stream = nullptr;
  require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
  return CudaStreamHandle(stream);
}

/// An event of the current device without time stamps, which would make each record slower. Errors:
/// those of `require_cuda`.
inline CudaEventHandle make_cuda_event() {
  cudaEvent_t event = nullptr;
  require_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  return CudaEventHandle(event);
}

}  // namespace kolo
