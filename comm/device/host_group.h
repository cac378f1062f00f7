#pragma once

#include <memory>
#include <vector>

#include "comm/device/device.h"
#include "comm/device/local_group.h"

namespace kolo {

/// Collectives among ranks that share one process, on host streams: what NCCL is to GPUs, for tests
/// and for machines without one.
///
/// The n-th call of every rank must be the same collective; the rank that arrives last computes it
/// for all, by the CPU reference (`reduce`, in group order). As in NCCL, a rank's collectives run
/// in the order of its calls, whatever streams they are on; none completes after a failure, until
/// the rank aborts.
///
/// Errors:  calls that differ are ErrorCode::kMismatch on all ranks, in a text that names two of
///          them and what they called. An abort is ErrorCode::kPeerLost on the others.
/// Threads: each rank's group as LocalGroup says; their streams any.
/// Before:  the hub outlives its groups and the streams that they were given; a rank aborts before
///          it frees memory that its calls use or drops a stream that has them.
class HostGroupHub {
 public:
  /// `members`: the ranks of the group as errors name them, in group order.
  explicit HostGroupHub(std::vector<int> members);
  ~HostGroupHub();
  HostGroupHub(const HostGroupHub&) = delete;
  HostGroupHub& operator=(const HostGroupHub&) = delete;

  int size() const;

  /// The group as its `rank`-th member sees it; `device` gives it memory.
  /// Errors: UsageError if there is no such member or it was taken before.
  std::unique_ptr<LocalGroup> group(int rank, Device& device);

  class Table;  ///< Where the ranks meet.

 private:
  std::unique_ptr<Table> table_;
};

}  // namespace kolo
