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
  std::string secret;           ///< A secret that only ranks of the job know; at most 256 bytes.
  int rank = 0;                 ///< This rank in the world.
  std::vector<int> node_ranks;  ///< World ranks of this node in ascending order, including `rank`.
  /// Names of the sockets of `node_ranks`, in the same order. No name can be derived from another
  /// one, so a process that sees one name cannot listen under the other names.
  std::vector<std::string> sockets;
  TransportLimits limits;
  bool opens_memory = true;  ///< Whether peers may access this process's memory.
  Duration connect_within = std::chrono::seconds(30);
};

/// Data and descriptors that this rank sends to its peers. It keeps ownership of the descriptors.
struct NodeOffer {
  int arena_fd = -1;
  int bell_fd = -1;
  MemoryToken token = {};
};

/// Data and descriptors that this rank received from one peer.
struct NodePeer {
  FileDescriptor socket;  ///< Stays open: it closes when the peer's process ends.
  FileDescriptor arena;
  FileDescriptor bell;
  MemoryToken token = {};
};

/// Connects the ranks of one node without a server: each rank listens under its own name, connects
/// to all lower ranks and accepts connections of all higher ranks. Both sides of a connection check
/// the user id, then exchange the secret, the rank and the limits together with their descriptors.
/// An accepted connection that does not prove the secret is refused and logged, and listening goes
/// on.
///
/// Returns the peers by local rank; the entry of this rank is empty.
/// Errors: KoloError(kAuth) if a lower rank refuses the secret or does not prove it; kConfig if
/// limits differ; kPeerLost, kTimeout or kIo if a peer does not connect. All errors name the peer.
std::vector<std::optional<NodePeer>> meet_node_peers(const NodeMembership& me,
                                                     const NodeOffer& offer);

/// The packets that end a connection: at an agreed end, and if the secret is wrong.
inline constexpr std::string_view kGoodbye = "goodbye";
inline constexpr std::string_view kRefusal = "refused";

}  // namespace kolo
