#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"
#include "comm/transport/peer_memory.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Who this rank is and whom it expects to meet on its node.
struct NodeMembership {
  std::string secret;           ///< Known to the ranks of the job only; at most 256 bytes.
  int rank = 0;                 ///< Of the world.
  std::vector<int> node_ranks;  ///< Ranks of the world on this node, ascending, `rank` included.
  /// Names of their sockets, in this order. No name tells another: who sees that of the first rank
  /// that listens cannot take those of the others.
  std::vector<std::string> sockets;
  TransportLimits limits;
  bool opens_memory = true;  ///< Peers may read the memory of this process.
  Duration connect_within = std::chrono::seconds(30);
};

/// What this rank hands over; the descriptors stay its own.
struct NodeOffer {
  int arena_fd = -1;
  int bell_fd = -1;
  MemoryToken token = {};
};

/// What one peer handed over.
struct NodePeer {
  FileDescriptor socket;  ///< Stays open: its hang-up tells that the peer's process has ended.
  FileDescriptor arena;
  FileDescriptor bell;
  MemoryToken token = {};
};

/// Introduces the ranks of one node to each other, by a rule that needs no server: each listens
/// under its name, connects to the ranks below and accepts those above. Both sides of a connection
/// check the user id, then show the secret, rank and limits with their descriptors; who does not
/// know the secret is refused, logged and otherwise ignored.
///
/// Shape:  by local rank; this rank's own entry is empty.
/// Errors: KoloError(kAuth) when a peer refuses the secret or does not know it; kConfig when limits
///         differ; kPeerLost, kTimeout or kIo when a peer does not come. All name the peer.
std::vector<std::optional<NodePeer>> meet_node_peers(const NodeMembership& me,
                                                     const NodeOffer& offer);

/// The packets that end a connection: an agreed end, and a refused hello.
inline constexpr std::string_view kGoodbye = "goodbye";
inline constexpr std::string_view kRefusal = "refused";

}  // namespace kolo
