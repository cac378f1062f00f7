#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"

namespace kolo::test {

/// Runs collectives among ranks in several processes of one machine, on host streams. The ranks of
/// a communicator write their contributions to a room: memory that all of them map. As in NCCL, a
/// rank's collectives run in the order of its calls, across all of its streams. Calls that differ
/// are not detected.
///
/// Threads: those of `DeviceCommunicator`.
class ProcessCommunicators {
 public:
  /// Makes a room, and returns a text by which other processes find it. It is there until this
  /// process ends.
  std::string make_room();
  /// Returns the communicator of `size` ranks, of which this is `rank`. Each room is for one
  /// communicator. `device` and this object outlive it.
  std::unique_ptr<DeviceCommunicator> enter(const std::string& room, int rank, int size,
                                            Device& device);
  /// Returns a connector for a rank that uses `device`, which outlives it, as does this object.
  std::unique_ptr<CommunicatorConnector> connector(Device& device);
  /// Returns the number of collectives of this rank that are complete.
  int completed() const { return completed_; }

 private:
  std::atomic<int> completed_{0};
};

}  // namespace kolo::test
