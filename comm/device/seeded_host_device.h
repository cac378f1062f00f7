#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "comm/device/host_device_base.h"

namespace kolo {

/// Host memory that behaves like an accelerator whose streams advance only in `step`, one operation
/// at a time, in an order that the seed picks: all interleavings that the waits allow are possible,
/// and the same seed with the same calls gives the same one. Memory is poisoned.
///
/// Threads: one, for the device and all that it made.
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
  std::vector<SeededStream*> streams_;     // in the order in which they were made
  std::vector<SeededStream*> candidates_;  // of one `step`; kept for its memory
};

}  // namespace kolo
