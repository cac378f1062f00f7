#pragma once

#include <string>

namespace kolo {

/// The CUDA devices that this process can use. Having none is a normal answer.
struct CudaAvailability {
  std::string runtime = {};  ///< Version of the CUDA runtime: "13.0".
  int device_count = 0;
  std::string reason = {};  ///< Why there is no device: "the driver ...". Empty if there is one.
};

/// Asks the CUDA runtime, without opening a device. Errors: none. Threads: any.
CudaAvailability find_cuda_devices();

}  // namespace kolo
