#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_emulator/block.h"

namespace kolo::emulator {

struct DeviceOptions {
  /// Seed of the order of threads and blocks.
  std::uint32_t seed = 1;
  /// Number of blocks that run concurrently; the device reports the same capacity.
  std::size_t resident_blocks = 3;
};

/// An emulated GPU of the thread that constructs it, for its lifetime. Launches of this thread run
/// on it immediately and to completion.
class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// The device of this thread. Errors: Fault if there is none.
  static Device& current();

  const DeviceOptions& options() const { return options_; }

  /// Runs all threads of a launch. A launch that CUDA would refuse runs none of them and leaves an
  /// error for `take_refusal`. Errors: Fault, or the exception of a kernel.
  void run(const Launch& launch);

  /// True if a launch since the last call was refused.
  bool take_refusal();

 private:
  DeviceOptions options_;
  Random random_;
  FiberPool fibers_;
  Device* before_;
  bool refused_ = false;
};

}  // namespace kolo::emulator
