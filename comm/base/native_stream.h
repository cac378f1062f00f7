#pragma once

namespace kolo {

/// A stream of the caller. Host memory needs none.
struct NativeStream {
  void* handle = nullptr;  ///< A cudaStream_t on a CUDA device; null is the default stream.
};

}  // namespace kolo
