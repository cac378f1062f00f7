#include "comm/transport/shm_handshake.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/transport/local_socket.h"

namespace kolo {

namespace {

constexpr std::size_t kLongestSecret = 256;
constexpr std::uint32_t kMagic = 0x4f4c4f4b;  // "KOLO"
constexpr std::uint32_t kVersion = 2;

/// The fixed part of a handshake packet; the secret follows it.
struct HandshakeHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t rank = 0;
  std::uint32_t flags_per_peer = 0;
  std::uint32_t counters = 0;
  std::uint32_t local_size = 0;
  std::uint64_t arena_bytes = 0;
  MemoryToken token = {};
};

constexpr std::size_t kLongestHandshake = sizeof(HandshakeHeader) + kLongestSecret;
constexpr Duration kHandshakeWait = std::chrono::seconds(5);

struct Handshake {
  HandshakeHeader header;
  NodePeer peer;
};

HandshakeHeader own_header(const NodeMembership& me) {
  return {.rank = me.rank,
          .flags_per_peer = me.limits.flags_per_peer,
          .counters = me.limits.counters,
          .local_size = static_cast<std::uint32_t>(me.node_ranks.size()),
          .arena_bytes = me.limits.arena_bytes};
}

bool send_handshake(const NodeMembership& me, int socket, const NodeOffer& offer) {
  HandshakeHeader header = own_header(me);
  header.token = offer.token;
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes += me.secret;
  const std::array descriptors{offer.arena_fd, offer.bell_fd};
  return send_packet(socket, bytes, descriptors);
}

/// Compares two texts in a time that does not depend on where they differ.
bool is_equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |=
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

KoloError handshake_error(const NodeMembership& me, ErrorCode code, int peer, std::string what) {
  return KoloError(Error{.code = code, .rank = me.rank, .peer = peer, .what = std::move(what)});
}

/// Returns the handshake in a packet; nothing unless its sender knows the secret.
std::optional<Handshake> parse_handshake(const NodeMembership& me, Packet packet) {
  Handshake handshake;
  if (packet.bytes.size() < sizeof handshake.header || packet.descriptors.size() != 2) {
    return std::nullopt;
  }
  std::memcpy(&handshake.header, packet.bytes.data(), sizeof handshake.header);
  const auto secret = std::string_view(packet.bytes).substr(sizeof handshake.header);
  if (handshake.header.magic != kMagic || !is_equal_in_constant_time(secret, me.secret)) {
    return std::nullopt;
  }
  handshake.peer.arena = std::move(packet.descriptors[0]);
  handshake.peer.bell = std::move(packet.descriptors[1]);
  handshake.peer.token = handshake.header.token;
  return handshake;
}

void check_agreement(const NodeMembership& me, const HandshakeHeader& theirs) {
  const HandshakeHeader mine = own_header(me);
  const auto require = [&](auto a, auto b, std::string_view what) {
    if (a == b) return;
    throw handshake_error(me, ErrorCode::kConfig, theirs.rank,
                          "ranks of one node differ in " + std::string(what) + ": " +
                              std::to_string(a) + " here, " + std::to_string(b) + " at rank " +
                              std::to_string(theirs.rank));
  };
  require(mine.version, theirs.version, "protocol version");
  require(mine.local_size, theirs.local_size, "ranks per node");
  require(mine.arena_bytes, theirs.arena_bytes, "arena bytes");
  require(mine.flags_per_peer, theirs.flags_per_peer, "flags per peer");
  require(mine.counters, theirs.counters, "counters");
}

/// Returns the error of a timeout while this rank waits for a peer.
KoloError late_error(const NodeMembership& me, int rank) {
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(me.connect_within);
  return handshake_error(me, ErrorCode::kTimeout, rank,
                         "rank " + std::to_string(rank) + " of this node did not connect within " +
                             std::to_string(limit.count()) + " ms");
}

/// Calls `call`, which waits for this peer, and names the peer if it times out.
template <typename Call>
auto await_peer(const NodeMembership& me, int rank, const Call& call) {
  try {
    return call();
  } catch (const KoloError& error) {
    if (error.error().code == ErrorCode::kTimeout) throw late_error(me, rank);
    throw;
  }
}

NodePeer join_peer(const NodeMembership& me, std::size_t index, const NodeOffer& offer,
                   TimePoint deadline) {
  const int rank = me.node_ranks[index];
  FileDescriptor socket =
      await_peer(me, rank, [&] { return connect_local(me.sockets[index], deadline); });
  if (!is_same_user(socket.get())) {
    throw handshake_error(me, ErrorCode::kAuth, rank,
                          "another user listens on the socket of rank " + std::to_string(rank));
  }
  std::optional<Packet> packet;
  if (send_handshake(me, socket.get(), offer)) {
    packet = await_peer(me, rank,
                        [&] { return receive_packet(socket.get(), kLongestHandshake, deadline); });
  }
  if (!packet) {
    throw handshake_error(me, ErrorCode::kPeerLost, rank,
                          "rank " + std::to_string(rank) + " ended while this rank connected");
  }
  if (packet->bytes == kRefusal) {
    throw handshake_error(me, ErrorCode::kAuth, rank,
                          "rank " + std::to_string(rank) + " refused this rank's job secret");
  }
  std::optional<Handshake> handshake = parse_handshake(me, std::move(*packet));
  if (!handshake || handshake->header.rank != rank) {
    throw handshake_error(
        me, ErrorCode::kAuth, rank,
        "who listens as rank " + std::to_string(rank) + " does not know the job's secret");
  }
  check_agreement(me, handshake->header);
  handshake->peer.socket = std::move(socket);
  return std::move(handshake->peer);
}

/// Waits for the next connection from a rank that knows the secret, and returns its handshake.
/// Other connections are refused.
Handshake accept_handshake(const NodeMembership& me, int listener, TimePoint deadline) {
  for (;;) {
    FileDescriptor socket = accept_local(listener, deadline);
    if (!is_same_user(socket.get())) {
      log::warn("turned away a local connection of another user");
      continue;
    }
    std::optional<Handshake> handshake;
    try {
      const TimePoint now(std::chrono::steady_clock::now());
      auto packet =
          receive_packet(socket.get(), kLongestHandshake, std::min(deadline, now + kHandshakeWait));
      if (!packet) continue;
      handshake = parse_handshake(me, std::move(*packet));
    } catch (const KoloError& error) {
      if (error.error().code == ErrorCode::kResources) throw;  // this process's own limit
      log::warn("turned away a local connection: " + error.error().what);
      continue;
    }
    if (!handshake) {
      log::warn("authentication: turned away a local connection without the job's secret");
      send_packet(socket.get(), kRefusal);
      continue;
    }
    handshake->peer.socket = std::move(socket);
    return std::move(*handshake);
  }
}

}  // namespace

std::vector<std::optional<NodePeer>> meet_node_peers(const NodeMembership& me,
                                                     const NodeOffer& offer) {
  check(me.secret.size() <= kLongestSecret, "the job's secret is longer than 256 bytes");
  const auto& ranks = me.node_ranks;
  check(std::ranges::is_sorted(ranks), "the ranks of a node are not ascending");
  const auto mine = std::ranges::find(ranks, me.rank);
  check(mine != ranks.end(), "this rank is not one of its node's");
  check(me.sockets.size() == ranks.size(), "each rank of a node has a socket");

  const TimePoint deadline = TimePoint(std::chrono::steady_clock::now()) + me.connect_within;
  std::vector<std::optional<NodePeer>> peers(ranks.size());
  const auto own_index = static_cast<std::size_t>(mine - ranks.begin());
  const FileDescriptor listener =
      listen_local(me.sockets[own_index], static_cast<int>(ranks.size()) + 16);
  for (std::size_t i = 0; i < own_index; ++i) peers[i] = join_peer(me, i, offer, deadline);
  for (std::size_t missing = ranks.size() - own_index - 1; missing > 0;) {
    const auto late = std::find(peers.begin() + static_cast<std::ptrdiff_t>(own_index) + 1,
                                peers.end(), std::nullopt);
    Handshake handshake =
        await_peer(me, ranks[static_cast<std::size_t>(late - peers.begin())],
                   [&] { return accept_handshake(me, listener.get(), deadline); });
    const auto found = std::find(mine + 1, ranks.end(), handshake.header.rank);
    const auto index = static_cast<std::size_t>(found - ranks.begin());
    if (found == ranks.end() || peers[index]) {
      log::warn("turned away a local connection that claims to be rank " +
                std::to_string(handshake.header.rank));
      continue;
    }
    // The answer is sent even if limits differ, so that both ranks report the difference.
    const bool answered = send_handshake(me, handshake.peer.socket.get(), offer);
    check_agreement(me, handshake.header);
    if (!answered) continue;  // the process ended; a new process of that rank may connect
    peers[index] = std::move(handshake.peer);
    --missing;
  }
  return peers;
}

}  // namespace kolo
