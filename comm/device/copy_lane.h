#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/device/device.h"

namespace kolo {

/// The streams by which one engine copies between device memory and pinned memory: one in each
/// direction, so that both directions of the bus are in use. Copies of one direction follow each
/// other, so one that waits for its caller's stream holds up those behind it.
///
/// Threads: the engine's.
class CopyLane {
 public:
  /// `device` outlives it.
  explicit CopyLane(Device& device) : device_(device) {}

  Device& device() { return device_; }

  /// From the device. Made at the first use, at plan time. Errors: as `Device::make_stream`.
  Stream& down() { return made(down_); }
  /// To the device; likewise.
  Stream& up() { return made(up_); }

  /// Keeps memory whose owner is gone until the copies before `copied` have left it.
  void keep(DeviceMemory memory, std::unique_ptr<Event> copied);

 private:
  struct Kept {
    DeviceMemory memory;
    std::unique_ptr<Event> copied;
  };

  Stream& made(std::unique_ptr<Stream>& stream) {
    if (!stream) stream = device_.make_stream();
    return *stream;
  }

  Device& device_;
  std::vector<Kept> kept_;  // before the streams, which end first
  std::unique_ptr<Stream> down_, up_;
};

}  // namespace kolo
