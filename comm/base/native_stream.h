#pragma once

namespace kolo {

/// A stream of the caller's: a cudaStream_t on a CUDA device, where null is the default stream.
/// Host memory needs none.
struct NativeStream {
  void* handle = nullptr;
};

}  // namespace kolo
