#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "comm/base/buffer_view.h"
#include "comm/base/native_stream.h"
#include "comm/device/device_kernels.h"
#include "comm/device/stream.h"

namespace kolo {

/// Whether work of a device may never end, because a collective could not be aborted. Memory of the
/// device is then leaked, because freeing it would wait for that work.
using StuckFlag = std::shared_ptr<std::atomic<bool>>;

/// Owns memory allocated by a device or a communicator. Move-only.
class DeviceMemory {
 public:
  using Free = std::function<void(void*)>;  ///< Frees the memory. Must not throw; it logs errors.

  DeviceMemory() = default;
  /// If `stuck` is not null and is set later, the memory is leaked.
  DeviceMemory(void* data, std::size_t bytes, MemoryKind kind, Free free, StuckFlag stuck = nullptr)
      : data_(data, {std::move(free), std::move(stuck)}), bytes_(bytes), kind_(kind) {}

  void leak_if(StuckFlag stuck) { data_.get_deleter().stuck = std::move(stuck); }

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  struct FreeUnlessStuck {
    Free free = {};
    StuckFlag stuck = {};
    void operator()(void* data) const {
      if (!stuck || !*stuck) free(data);
    }
  };

  std::unique_ptr<void, FreeUnlessStuck> data_{nullptr, {}};
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

  /// Allocates memory of kind kPinned or kDevice, aligned to 256 bytes. Call it only at plan time:
  /// this call, or freeing the memory, may wait for all work of the device.
  /// Errors: KoloError(kResources) that names bytes, kind and device.
  virtual DeviceMemory allocate(std::size_t bytes, MemoryKind kind) = 0;

  /// Allocates device memory at any time, from the pool of a stream of this device: neither this
  /// call nor freeing the memory waits for the device. The memory may be used after the work that
  /// is enqueued on the stream so far, and is freed after the work enqueued until then. It may
  /// outlive the stream. Errors: as `allocate`.
  virtual DeviceMemory allocate_on(Stream& stream, std::size_t bytes) = 0;

  /// Records `event` on a stream of the caller, after the work enqueued so far.
  virtual void record(NativeStream stream, Event& event) = 0;
  /// Makes a stream of the caller wait for `event`.
  virtual void wait(NativeStream stream, const Event& event) = 0;

  /// Blocks until `event` is done. For calls between iterations, such as saving state; an engine
  /// polls instead. Errors: those of `Event::done`.
  virtual void finish(const Event& event) {
    while (!event.done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  /// Describes the memory at `data` unless kernels of this device may use it as device memory:
  /// "memory of cuda:1", "host memory". Otherwise the text is empty. Costs little for an address
  /// that was asked about before. Threads: any.
  virtual std::string foreign_memory(const void* data) = 0;

  virtual DeviceKernels& kernels() = 0;

  virtual AllocationCounts allocation_counts() const = 0;

  /// Notes that work of this device may never end: from now on its memory is leaked. Threads: any.
  virtual void note_stuck() { stuck_->store(true); }
  const StuckFlag& stuck() const { return stuck_; }

  /// Returns why the `bytes` bytes at `data` are no memory of this device, such as "memory of
  /// cuda:1, where that of cuda:0 (...) is expected"; empty if they are.
  std::string problem_with(const void* data, std::size_t bytes) {
    std::string found = bytes > 0 ? foreign_memory(data) : std::string();
    if (!found.empty()) found += ", where that of " + describe() + " is expected";
    return found;
  }

 private:
  const StuckFlag stuck_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace kolo
