#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_emulator/block.h"

namespace kolo::emulator {

struct DeviceOptions {
  /// Seed of the order in which threads and blocks run.
  std::uint32_t seed = 1;
  /// Number of blocks that run concurrently. The device reports this occupancy.
  std::size_t resident_blocks = 3;
};

/// An emulated GPU for the thread that constructs it. While it exists, launches of this thread run
/// on it and block until they are complete.
class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Returns the device of this thread. Errors: Fault if there is none.
  static Device& current();

  const DeviceOptions& options() const { return options_; }

  /// Runs all threads of a launch. A launch that CUDA would refuse runs no thread; `take_refusal`
  /// reports it. Errors: Fault, or the exception of a kernel.
  void run(const Launch& launch);

  /// Returns whether a launch was refused since the last call.
  bool take_refusal();

 private:
  DeviceOptions options_;
  Random random_;
  FiberPool fibers_;
  Device* before_;
  bool refused_ = false;
};

}  // namespace kolo::emulator
