#pragma once

#include <atomic>

#include "comm/device/device.h"
#include "comm/device/host_kernels.h"

namespace kolo {

/// What the devices in host memory share: all but the way in which streams run.
///
/// A NativeStream is a HostStream* of the same device; with a null handle, the caller has no
/// stream: what they did has happened already, so `record` gives an event that is done, and `wait`
/// is a UsageError (such a caller asks the event).
class HostDeviceBase : public Device {
 public:
  std::unique_ptr<Stream> make_stream() final;
  std::unique_ptr<Event> make_event() final;
  DeviceMemory allocate(std::size_t bytes, MemoryKind kind) final;
  void record(NativeStream stream, Event& event) final;
  void wait(NativeStream stream, const Event& event) final;
  DeviceKernels& kernels() final { return kernels_; }
  AllocationCounts allocation_counts() const final;

 private:
  virtual std::unique_ptr<Stream> open_stream() = 0;

  HostKernels kernels_;
  std::atomic<std::size_t> allocations_{0}, streams_{0}, events_{0};
};

}  // namespace kolo
