#pragma once

namespace kolo {

/// There is one emulated device.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int) {}
};

}  // namespace kolo
