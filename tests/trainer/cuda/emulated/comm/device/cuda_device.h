#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "tests/support/cuda_emulator/device.h"
#include "tests/support/device/host_device.h"

// The namespace keeps these apart from the classes of a GPU, which the same program may contain.
namespace kolo {
inline namespace emulated {

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
class CudaDevice final : public HostDevice {
 public:
  explicit CudaDevice(int index)
      : index_(index),
        emulated_({.seed = static_cast<std::uint32_t>(index) + kSeed, .resident_blocks = 4}) {}

  int index() const { return index_; }

 private:
  static constexpr std::uint32_t kSeed = 7;

  /// The work of a caller without a stream runs in its thread.
  void wait_in_thread(const Event& event) override {
    while (!event.done()) std::this_thread::yield();
  }

  const int index_;
  emulator::Device emulated_;
};

}  // namespace emulated
}  // namespace kolo
