#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "comm/base/buffer_view.h"
#include "comm/base/native_stream.h"
#include "comm/device/device_kernels.h"
#include "comm/device/stream.h"

namespace kolo {

/// Owns memory allocated by a device or a communicator. Move-only.
class DeviceMemory {
 public:
  using Free = std::function<void(void*)>;  ///< Frees the memory. Must not throw; it logs errors.

  DeviceMemory() = default;
  DeviceMemory(void* data, std::size_t bytes, MemoryKind kind, Free free)
      : data_(data, std::move(free)), bytes_(bytes), kind_(kind) {}

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::unique_ptr<void, Free> data_{nullptr, {}};
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

/// The number of objects that a device has created so far. It is constant in steady state.
struct AllocationCounts {
  std::size_t allocations = 0;  ///< Allocations of device and pinned memory.
  std::size_t streams = 0;
  std::size_t events = 0;
};

/// One accelerator of this rank: a GPU, or one simulated by host memory and threads.
///
/// Threads: any for `make_event`, `allocate` and `record`; see Stream for the other calls. The
///          device must outlive the streams, events and memory that it made.
class Device {
 public:
  virtual ~Device() = default;

  /// Describes the device: "cuda:0 (NVIDIA H200, 0000:1b:00.0)" or "host threads".
  virtual std::string describe() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Allocates memory of kind kPinned or kDevice, aligned to 256 bytes. Call it only at plan time.
  /// Errors: KoloError(kResources) that names bytes, kind and device.
  virtual DeviceMemory allocate(std::size_t bytes, MemoryKind kind) = 0;

  /// Records `event` on a stream of the caller, after the work enqueued so far.
  virtual void record(NativeStream stream, Event& event) = 0;
  /// Makes a stream of the caller wait for `event`.
  virtual void wait(NativeStream stream, const Event& event) = 0;

  virtual DeviceKernels& kernels() = 0;

  virtual AllocationCounts allocation_counts() const = 0;
};

}  // namespace kolo
