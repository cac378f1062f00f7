#pragma once

#include <cuda_runtime_api.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/device/cuda_error.h"

namespace kolo {

/// Makes `device` the current one of this thread during its own lifetime.
///
/// The former device becomes current again only if this process has a context on it. Setting a
/// device opens a context of some hundred megabytes, and device 0, with which a thread begins, may
/// belong to another rank.
class CudaDeviceGuard {
 public:
  /// Errors: those of `require_cuda`.
  explicit CudaDeviceGuard(int device);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Calls `close` with `device` current; for destructors.
template <typename Close>
void close_on(int device, Close&& close) noexcept {
  try {
    const CudaDeviceGuard guard(device);
    close();
  } catch (const KoloError& error) {
    log::error(error.what());
  }
}

}  // namespace kolo
