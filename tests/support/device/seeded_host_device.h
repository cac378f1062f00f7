#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/device/host_device_base.h"

namespace kolo {

/// Host memory that behaves like an accelerator whose streams advance only in `step`, one operation
/// at a time, in an order given by the seed. All interleavings that the waits allow are possible;
/// the same seed and calls give the same one. Memory is poisoned.
///
/// Threads: one, for the device and everything it made.
class SeededHostDevice final : public HostDeviceBase {
 public:
  explicit SeededHostDevice(std::uint64_t seed) : seed_(seed), generator_(seed) {}

  std::string describe() const override { return "host, seed " + std::to_string(seed_); }

  /// Completes one operation: the oldest of a stream picked among those whose oldest can complete.
  /// Returns false if there is none.
  bool step();

  /// Steps until nothing can complete.
  void settle() {
    while (step()) {
    }
  }

 private:
  class SeededStream;

  std::unique_ptr<Stream> open_stream() override;

  const std::uint64_t seed_;
  std::mt19937_64 generator_;
  std::vector<SeededStream*> streams_;     // in order of creation
  std::vector<SeededStream*> candidates_;  // of one `step`; a member to reuse its memory
};

}  // namespace kolo
