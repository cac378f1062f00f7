#pragma once

#include <atomic>

#include "comm/device/cuda_kernels.h"
#include "comm/device/device.h"

namespace kolo {

/// One GPU through the CUDA runtime. A NativeStream is a cudaStream_t of this GPU; null is its
/// legacy default stream.
class CudaDevice final : public Device {
 public:
  /// Opens GPU `index` among those visible to the process. Errors: KoloError(kInternal) with CUDA's
  /// text.
  explicit CudaDevice(int index);

  int index() const { return index_; }

  std::string describe() const override { return description_; }
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  DeviceMemory allocate(std::size_t bytes, MemoryKind kind) override;
  void record(NativeStream stream, Event& event) override;
  void wait(NativeStream stream, const Event& event) override;
  DeviceKernels& kernels() override { return kernels_; }
  AllocationCounts allocation_counts() const override;

 private:
  const int index_;
  std::string description_;
  CudaKernels kernels_;
  std::atomic<std::size_t> allocations_{0}, streams_{0}, events_{0};
};

}  // namespace kolo
