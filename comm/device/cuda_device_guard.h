#pragma once

#include <cuda_runtime_api.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/device/cuda_error.h"

namespace kolo {

/// Makes `device` the current one of this thread while it lives.
///
/// The device before it becomes current again only if this process uses that: setting a device
/// opens a context there, some hundred megabytes, and the device that a thread begins with, number
/// 0, may well belong to another rank.
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
