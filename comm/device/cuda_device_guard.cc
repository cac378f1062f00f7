#include "comm/device/cuda_device_guard.h"

#include <cuda.h>  // Types only; not every machine has the driver library.

namespace kolo {
namespace {

/// True if this process has a context on `device`. The CUDA runtime has no call for this.
bool is_in_use(int device) {
  constexpr unsigned kSince = 7000;  // The CUDA version that defines this form of the call.
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry,
                                                              kSince, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return false;
  unsigned flags = 0;
  int active = 0;
  const auto get_state = reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(entry);
  return get_state(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

}  // namespace

CudaDeviceGuard::CudaDeviceGuard(int device) {
  require_cuda(cudaGetDevice(&before_), "cudaGetDevice");
  if (device == before_) return;
  require_cuda(cudaSetDevice(device), "cudaSetDevice");
  changed_ = true;
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (changed_ && is_in_use(before_)) log_cuda(cudaSetDevice(before_), "cudaSetDevice");
}

}  // namespace kolo
