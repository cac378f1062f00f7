#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_emulator/block.h"

namespace kolo::emulator {

struct DeviceOptions {
  /// Of the order in which threads and blocks take turns.
  std::uint32_t seed = 1;
  /// Blocks that run side by side; also what the device says how many it can hold.
  std::size_t resident_blocks = 3;
};

/// A GPU on the thread that constructs it, for as long as it lives: launches of this thread run
/// here, at once and to their end.
class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// That of this thread. Errors: Fault if there is none.
  static Device& current();

  const DeviceOptions& options() const { return options_; }

  /// Runs all threads of a launch. A launch that CUDA would refuse runs none of them and leaves an
  /// error for `take_refusal`. Errors: Fault, or what a kernel has thrown.
  void run(const Launch& launch);

  /// Whether a launch since the last call was refused.
  bool take_refusal();

 private:
  DeviceOptions options_;
  Random random_;
  FiberPool fibers_;
  Device* before_;
  bool refused_ = false;
};

}  // namespace kolo::emulator
