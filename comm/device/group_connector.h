#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/device/local_group.h"

namespace kolo {

/// A group whose ranks are being connected. Destroyed before they are, it is given up.
class ConnectingGroup {
 public:
  virtual ~ConnectingGroup() = default;
  /// The group, once all its ranks are connected; null before. Not called again after either.
  /// Errors: KoloError(kTimeout) when the ranks are not connected in time, kPeerLost or kInternal
  /// with the library's reason.
  virtual std::unique_ptr<LocalGroup> poll() = 0;
};

/// Makes groups of the device's library after the start of a job, among any ranks, without waiting
/// for them: all members connect with an invitation that one of them has drawn.
///
/// Threads: one, the engine's. Nothing blocks.
class GroupConnector {
 public:
  virtual ~GroupConnector() = default;

  /// The length of an invitation, equal on all ranks.
  virtual std::size_t invitation_bytes() const = 0;
  /// A new invitation. Whoever draws it is one of the members, and stays until they are connected.
  /// Errors: those of the library.
  virtual std::vector<std::byte> invite() = 0;
  /// Begins to connect this rank as number `rank` of `size`. Errors: KoloError(kConfig) if the
  /// libraries of this rank and of the inviting one differ, else those of the library.
  virtual std::unique_ptr<ConnectingGroup> connect(std::span<const std::byte> invitation, int rank,
                                                   int size) = 0;
};

}  // namespace kolo
