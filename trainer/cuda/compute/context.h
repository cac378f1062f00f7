#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "comm/device/device.h"
#include "trainer/cuda/compute/blas.h"
#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/compute/status.h"

namespace kolo::trainer::cuda {

/// The objects that all layers of a model share: device, stream, the libraries on the stream, and
/// the dtype of activations. Threads: one.
class Context {
 public:
  Context(kolo::Device& device, Stream& stream, DType dtype)
      : blas(device, stream),
        dnn(device, stream),
        device_(device),
        stream_(stream),
        dtype_(dtype) {}

  Blas blas;
  Dnn dnn;

  DType dtype() const { return dtype_; }
  NativeStream stream() const { return {stream_.native()}; }

  /// Allocates device memory for `count` activations. Call during setup, not in a step.
  DeviceMemory activations(std::size_t count) {
    return device_.allocate(count * size_of(dtype_), MemoryKind::kDevice);
  }
  /// Allocates device memory for `count` float32 numbers. Call during setup, not in a step.
  DeviceMemory floats(std::size_t count) {
    return device_.allocate(count * sizeof(float), MemoryKind::kDevice);
  }

  /// Copies `values` to device memory. Blocks. Call during setup, not in a step.
  DeviceMemory upload(std::span<const float> values) {
    const DeviceMemory pinned = device_.allocate(values.size_bytes(), MemoryKind::kPinned);
    std::memcpy(pinned.data(), values.data(), values.size_bytes());
    DeviceMemory memory = floats(values.size());
    stream_.copy({memory.data(), values.size(), DType::kFloat32, MemoryKind::kDevice},
                 {pinned.data(), values.size(), DType::kFloat32, MemoryKind::kPinned});
    const std::unique_ptr<Event> copied = device_.make_event();
    stream_.record(*copied);
    wait_for(*copied);
    return memory;
  }

  /// Makes the scratch memory at least `count` float32 numbers large. Call during setup, not in a
  /// step. All layers share this memory, so each layer overwrites what the layer before wrote.
  void reserve_scratch(std::size_t count) {
    if (count * sizeof(float) > scratch_.bytes()) scratch_ = floats(count);
  }
  float* scratch() const { return reinterpret_cast<float*>(scratch_.data()); }

 private:
  kolo::Device& device_;
  Stream& stream_;
  DType dtype_;
  DeviceMemory scratch_;
};

}  // namespace kolo::trainer::cuda
