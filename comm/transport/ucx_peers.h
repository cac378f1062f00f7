#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "comm/transport/transport.h"
#include "comm/transport/ucx_library.h"

namespace kolo {

/// The two connections to a peer. They are separate, so that a control frame never waits for data
/// that was sent earlier.
enum class UcxChannel : std::uint8_t { kData, kControl };
inline constexpr std::size_t kUcxLanes = 2;

/// The connections of one UCX worker to all ranks, and their state.
///
/// Before: the worker outlives the last call. Threads: the worker's.
class UcxPeers {
 public:
  struct Peer {
    UcxPeers* owner = nullptr;
    int rank = -1;
    std::array<ucp_ep_h, kUcxLanes> endpoints = {};
    ucs_status_t status = UCS_OK;  ///< State of both connections.
    bool said_goodbye = false;
    TrafficCounters traffic;
  };

  UcxPeers(const UcxLibrary& ucx, ucp_worker_h worker, int world_size);
  UcxPeers(const UcxPeers&) = delete;  // UCX keeps pointers to its peers.
  UcxPeers& operator=(const UcxPeers&) = delete;

  /// Sets the addresses of all ranks, indexed by rank.
  void set_addresses(std::vector<std::string> addresses);

  /// Returns the peer with this rank. Errors: UsageError if the rank does not exist.
  const Peer& operator[](int rank) const;
  Peer& operator[](int rank) { return const_cast<Peer&>(std::as_const(*this)[rank]); }

  /// Returns the connection to a peer and creates it if necessary; null once the connections to the
  /// peer are broken. The first call for a peer always creates the connection for control frames: a
  /// rank that waits for data pings the sender, and could not connect once the sender is
  /// unreachable.
  ucp_ep_h endpoint(Peer& peer, UcxChannel lane);

  void note_status(Peer& peer, ucs_status_t status);
  /// Whether a connection broke since the last `take_broken`.
  bool has_broken() const { return !broken_.empty(); }
  /// Returns the first peer whose connection broke since the last call and that has not said
  /// goodbye; null if there is none.
  const Peer* take_broken();

  /// Calls visit(peer, lane) for every open connection.
  template <typename Visit>
  void for_each_open(Visit visit) {
    for (Peer& peer : peers_) {
      for (const UcxChannel lane : {UcxChannel::kData, UcxChannel::kControl}) {
        const bool is_open = peer.endpoints[static_cast<std::size_t>(lane)] != nullptr;
        if (is_open && peer.status == UCS_OK && !peer.said_goodbye) visit(peer, lane);
      }
    }
  }

  /// Waits until UCX has sent all pending data, or until the deadline.
  void flush(TimePoint deadline);
  /// Closes all connections; waits until the deadline at most.
  void close(TimePoint deadline);

 private:
  void open(Peer& peer, UcxChannel lane);
  void wait_for(const std::vector<ucs_status_ptr_t>& requests, TimePoint deadline);

  const UcxLibrary& ucx_;
  ucp_worker_h worker_;
  std::vector<std::string> addresses_;
  std::vector<Peer> peers_;    // by rank; never grows, because UCX keeps pointers to its elements
  std::vector<Peer*> broken_;  // since `take_broken`, in the order in which the connections broke
};

}  // namespace kolo
