#pragma once

namespace kolo {

/// A stream of the caller on a device. Calls with host memory need none.
struct NativeStream {
  void* handle = nullptr;  ///< A cudaStream_t for a CUDA device, or null for the default stream.
};

}  // namespace kolo
