#pragma once

#include <atomic>

#include "comm/device/device.h"
#include "tests/support/device/host_kernels.h"

namespace kolo {

/// Common base of the devices in host memory; they differ in how streams run.
///
/// A NativeStream is a HostStream* of the same device. With a null handle the caller has no stream
/// and its work has already happened: `record` gives a completed event, and `wait` is a UsageError
/// (such a caller polls the event).
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
