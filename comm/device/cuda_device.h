#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <string>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/device/cuda_error.h"
#include "comm/device/device.h"
#include "comm/device/device_kernels.h"
#include "comm/device/freeing_thread.h"

namespace kolo {

/// The CUDA devices that this process can use. Finding none is not an error.
struct CudaAvailability {
  std::string runtime = {};  ///< Version of the CUDA runtime: "13.0".
  int device_count = 0;
  std::string reason = {};  ///< Reason if there is no device: "the driver ...".
};

/// Asks the CUDA runtime for devices. Creates no context on a device. Errors: none. Threads: any.
CudaAvailability find_cuda_devices();

/// Makes `device` the current CUDA device of this thread for the lifetime of the guard. Meanwhile
/// this thread may make any call, although another thread may capture a CUDA graph: without this,
/// CUDA would refuse calls such as event queries and allocations, and invalidate the capture.
///
/// The destructor selects the previous device only if this process has a context on it. Otherwise
/// selecting it would create a context of some hundred megabytes, perhaps on another rank's device:
/// every thread starts with device 0.
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
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then: the mode before
};

/// Calls `close()` while `device` is current. Logs errors instead of throwing.
template <typename Close>
void close_on(int device, Close&& close) noexcept {
  try {
    const CudaDeviceGuard guard(device);
    close();
  } catch (const KoloError& error) {
    log::error(error.what());
  }
}

/// Calls `allocate`. If memory is short, waits until `freeing` has freed its own, and calls it once
/// more.
template <typename Allocate>
cudaError_t allocate_patiently(FreeingThread& freeing, Allocate&& allocate) {
  const cudaError_t status = allocate();
  if (status != cudaErrorMemoryAllocation || !freeing.finish()) return status;
  (void)cudaGetLastError();  // clears the error, so that no later call reports it
  return allocate();
}

/// Kernels on CUDA streams; see comm/device/kernels/. Stateless. Threads: any.
class CudaKernels final : public DeviceKernels {
 public:
  void copy_batched(Stream& stream, const BatchedCopy& copy) override;
  void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
              std::span<const void* const> sources, std::size_t count, double scale) override;
  void sum_rows(Stream& stream, const RowGroups& groups, const void* rows, std::size_t width,
                DType dtype, double scale, void* sums) override;
  void spread_rows(Stream& stream, std::span<const std::int64_t> indices, const void* rows,
                   std::size_t row_bytes, void* table, std::size_t height) override;
  void top_k(Stream& stream, const TopK& task, std::span<std::byte> workspace) override;
  void subtract_pairs(Stream& stream, std::span<const std::int64_t> indices, const float* values,
                      float* residual, float* velocity) override;
  void quantise(Stream& stream, const Quantisation& task) override;
  void find_non_finite(Stream& stream, DType dtype, const void* data, std::size_t count,
                       std::uint32_t* non_finite) override;
};

/// One GPU, used through the CUDA runtime. The handle of a NativeStream is a cudaStream_t of this
/// GPU; null is the GPU's legacy default stream. The destructor waits until memory of this device
/// and of its communicators is freed, as `FreeingThread` says.
class CudaDevice final : public Device {
 public:
  /// Opens GPU `index` of the GPUs visible to the process. Errors: those of `require_cuda`.
  explicit CudaDevice(int index);

  int index() const { return index_; }
  /// The thread that frees memory of this device and of its communicators.
  const std::shared_ptr<FreeingThread>& freeing() const { return freeing_; }

  std::string describe() const override { return description_; }
  /// Streams of communication have the highest priority: peers wait for their short kernels.
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  DeviceMemory allocate(std::size_t bytes, MemoryKind kind) override;
  DeviceMemory allocate_on(Stream& stream, std::size_t bytes) override;
  void record(NativeStream stream, Event& event) override;
  void wait(NativeStream stream, const Event& event) override;
  std::string foreign_memory(const void* data) override;
  DeviceKernels& kernels() override { return kernels_; }
  AllocationCounts allocation_counts() const override;
  /// From now on, the process also skips what runs at its end, such as destructors of CUDA, which
  /// would wait for the work: `exit` and a return from `main` write buffered output and leave.
  void note_stuck() override;

 private:
  const int index_;
  std::string description_;
  CudaKernels kernels_;
  const std::shared_ptr<FreeingThread> freeing_ = std::make_shared<FreeingThread>();
  std::atomic<std::size_t> allocations_{0}, streams_{0}, events_{0};
  /// Addresses that were memory of this device, each at a place that it determines. They are not
  /// asked about again, not even after their memory was freed.
  std::array<std::atomic<const void*>, 256> own_addresses_{};
};

}  // namespace kolo
