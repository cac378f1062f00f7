#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"
#include "comm/transport/peer_memory.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The identity of this rank, and the peers that it expects on its node.
struct NodeMembership {
  std::string secret;           ///< Known only to the ranks of the job; at most 256 bytes.
  int rank = 0;                 ///< Rank in the world.
  std::vector<int> node_ranks;  ///< Ranks of the world on this node, ascending, `rank` included.
  /// Names of their sockets, in this order. No name reveals another: a process that sees the name
  /// of the first listening rank cannot take the other names.
  std::vector<std::string> sockets;
  TransportLimits limits;
  bool opens_memory = true;  ///< Peers may access the memory of this process.
  Duration connect_within = std::chrono::seconds(30);
};

/// Data and descriptors that this rank gives to its peers; it keeps its own descriptors.
struct NodeOffer {
  int arena_fd = -1;
  int bell_fd = -1;
  MemoryToken token = {};
};

/// Data and descriptors received from one peer.
struct NodePeer {
  FileDescriptor socket;  ///< Stays open: a hang-up tells that the peer's process has ended.
  FileDescriptor arena;
  FileDescriptor bell;
  MemoryToken token = {};
};

/// Introduces the ranks of one node to each other without a server: each rank listens under its
/// name, connects to lower ranks and accepts higher ones. Both sides of a connection check the user
/// id, then exchange the secret, rank and limits together with their descriptors. A connection
/// without the secret is refused, logged and otherwise ignored.
///
/// Shape:  by local rank; this rank's own entry is empty.
/// Errors: KoloError(kAuth) if a peer refuses the secret or does not know it; kConfig if limits
///         differ; kPeerLost, kTimeout or kIo if a peer does not come. All name the peer.
std::vector<std::optional<NodePeer>> meet_node_peers(const NodeMembership& me,
                                                     const NodeOffer& offer);

/// The packets that end a connection: an agreed end, and a refused hello.
inline constexpr std::string_view kGoodbye = "goodbye";
inline constexpr std::string_view kRefusal = "refused";

}  // namespace kolo
