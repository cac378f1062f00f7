#pragma once

#include <memory>
#include <vector>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"

namespace kolo {

/// Runs collectives among ranks of one process, on host streams. It replaces NCCL in tests and on
/// machines without a GPU.
///
/// The n-th call of every rank must be the same collective. The last rank that reaches it computes
/// it for all ranks with the CPU reference (`reduce`, in group order). As in NCCL, a rank's
/// collectives run in the order of its calls, across all of its streams. After a failure no
/// collective of a rank completes until the rank aborts.
///
/// Errors:  if calls differ, all ranks get ErrorCode::kMismatch with a text that names two ranks
/// and their calls. After an abort, the other ranks get ErrorCode::kPeerLost.
/// Threads: a rank's group may be called as `DeviceCommunicator` allows; its streams by any thread.
/// Before:  the hub outlives its groups and their streams. A rank aborts before it frees memory
/// that its pending calls use, or destroys a stream with pending calls.
class HostCommunicatorHub {
 public:
  /// `members`: the ranks of the group in group order, named in errors.
  explicit HostCommunicatorHub(std::vector<int> members);
  ~HostCommunicatorHub();
  HostCommunicatorHub(const HostCommunicatorHub&) = delete;
  HostCommunicatorHub& operator=(const HostCommunicatorHub&) = delete;

  int size() const;

  /// Makes every call wait for the same call of all ranks before it is on its stream, as NCCL does
  /// that connects to its peers. Before: no rank has made a call.
  void launch_together();

  /// Returns the group of its `rank`-th member; `device` allocates its memory. Errors: UsageError
  /// if there is no such member, or if its group was returned before.
  std::unique_ptr<DeviceCommunicator> group(int rank, Device& device);

  class Table;  ///< The state of the current collective, shared by all ranks.

 private:
  std::unique_ptr<Table> table_;
};

}  // namespace kolo
