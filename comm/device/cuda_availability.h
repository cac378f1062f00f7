#pragma once

#include <string>

namespace kolo {

/// What this process can use of CUDA; that it can use nothing is a normal answer.
struct CudaAvailability {
  std::string runtime = {};  ///< The version of the CUDA runtime: "13.0".
  int device_count = 0;
  std::string reason = {};  ///< Why there is no device: "the driver ...". Empty if there is one.
};

/// Asks the CUDA runtime, without opening a device. Errors: none. Threads: any.
CudaAvailability find_cuda_devices();

}  // namespace kolo
