#pragma once

#include <string>

namespace kolo {

/// The emulated device is always there.
struct CudaAvailability {
  int device_count = 1;
  std::string reason = {};
};

inline CudaAvailability find_cuda_devices() { return {}; }

}  // namespace kolo
