#pragma once

#include <memory>
#include <vector>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"

namespace kolo {

/// Collectives among ranks of one process, on host streams: the counterpart of NCCL for tests and
/// for machines without a GPU.
///
/// The n-th call of every rank must be the same collective. The last rank to arrive computes it for
/// all, by the CPU reference (`reduce`, in group order). As in NCCL, a rank's collectives run in
/// the order of its calls on all streams; after a failure no collective completes until the rank
/// aborts.
///
/// Errors:  calls that differ are ErrorCode::kMismatch on all ranks; the text names two ranks and
///          their calls. An abort is ErrorCode::kPeerLost on the other ranks.
/// Threads: for a rank's group as in DeviceCommunicator; any for its streams.
/// Before:  the hub outlives its groups and their streams. A rank aborts before it frees memory
///          that its calls use or destroys a stream that has them.
class HostCommunicatorHub {
 public:
  /// `members`: the ranks of the group, in group order, for errors.
  explicit HostCommunicatorHub(std::vector<int> members);
  ~HostCommunicatorHub();
  HostCommunicatorHub(const HostCommunicatorHub&) = delete;
  HostCommunicatorHub& operator=(const HostCommunicatorHub&) = delete;

  int size() const;

  /// The group for its `rank`-th member; `device` allocates its memory. Errors: UsageError if there
  /// is no such member or its group was taken before.
  std::unique_ptr<DeviceCommunicator> group(int rank, Device& device);

  class Table;  ///< The ranks' meeting point.

 private:
  std::unique_ptr<Table> table_;
};

}  // namespace kolo
