#include "tests/support/device/host_device_base.h"

#include "comm/base/check.h"
#include "tests/support/device/host_memory.h"
#include "tests/support/device/host_stream.h"

namespace kolo {

std::unique_ptr<Stream> HostDeviceBase::make_stream() {
  std::unique_ptr<Stream> stream = open_stream();
  ++streams_;
  return stream;
}

std::unique_ptr<Event> HostDeviceBase::make_event() {
  ++events_;
  return std::make_unique<HostEvent>();
}

DeviceMemory HostDeviceBase::allocate(std::size_t bytes, MemoryKind kind) {
  check(kind != MemoryKind::kHost, "a device allocates only device and pinned memory");
  DeviceMemory memory = allocate_poisoned(bytes, kind, describe());
  ++allocations_;
  return memory;
}

void HostDeviceBase::record(NativeStream stream, Event& event) {
  if (stream.handle != nullptr) {
    static_cast<HostStream*>(stream.handle)->record(event);
  } else {
    as_host(event).clear();
  }
}

void HostDeviceBase::wait(NativeStream stream, const Event& event) {
  check(stream.handle != nullptr, "there is no stream that could wait");
  static_cast<HostStream*>(stream.handle)->wait(event);
}

AllocationCounts HostDeviceBase::allocation_counts() const {
  return {.allocations = allocations_, .streams = streams_, .events = events_};
}

}  // namespace kolo
