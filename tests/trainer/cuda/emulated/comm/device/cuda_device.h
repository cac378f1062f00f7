#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/cuda_emulator/device.h"
#include "tests/support/device/host_device.h"

namespace kolo {

/// The emulated device is always available.
struct CudaAvailability {
  int device_count = 1;
  std::string reason = {};
};

inline CudaAvailability find_cuda_devices() { return {}; }

/// There is only one emulated device, so this selects nothing.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int) {}
};

/// Replaces a GPU. Memory and streams are those of a host device, and kernels run on the emulated
/// device of the constructing thread. A kernel runs at its launch, so copies that were enqueued
/// before it must be waited for.
class CudaDevice {
 public:
  explicit CudaDevice(int index)
      : emulated_({.seed = static_cast<std::uint32_t>(index) + kSeed, .resident_blocks = 4}) {}

  std::unique_ptr<Stream> make_stream() { return host_.make_stream(); }
  std::unique_ptr<Event> make_event() { return host_.make_event(); }
  DeviceMemory allocate(std::size_t bytes, MemoryKind kind) { return host_.allocate(bytes, kind); }

 private:
  static constexpr std::uint32_t kSeed = 7;

  HostDevice host_;
  emulator::Device emulated_;
};

}  // namespace kolo
