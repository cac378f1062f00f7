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

/// The two connections to a peer: separate, so that a control frame never waits for data that was
/// sent before it.
enum class UcxLane : std::uint8_t { kData, kControl };
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
    ucs_status_t status = UCS_OK;  ///< State of the connections.
    bool said_goodbye = false;
    TrafficCounters traffic;
  };

  UcxPeers(const UcxLibrary& ucx, ucp_worker_h worker, int world_size);
  UcxPeers(const UcxPeers&) = delete;  // Endpoints point into it.
  UcxPeers& operator=(const UcxPeers&) = delete;

  /// Takes the addresses of all ranks, by rank.
  void set_addresses(std::vector<std::string> addresses);

  /// Errors: UsageError if there is no such rank.
  const Peer& operator[](int rank) const;
  Peer& operator[](int rank) { return const_cast<Peer&>(std::as_const(*this)[rank]); }

  /// The connection to a peer, created now if there is none. The connection for control frames is
  /// created together with the first of either kind: a rank that waits for data pings its sender,
  /// and must not first have to connect to a sender that is no longer reachable. Null once the
  /// peer's connections are broken.
  ucp_ep_h endpoint(Peer& peer, UcxLane lane);

  void note_status(Peer& peer, ucs_status_t status);
  /// Whether a connection broke since the last `take_broken`.
  bool has_broken() const { return !broken_.empty(); }
  /// The peer whose connection broke first since the last call, ignoring peers that had said
  /// goodbye.
  const Peer* take_broken();

  /// Calls visit(peer, lane) for every open connection.
  template <typename Visit>
  void for_each_open(Visit visit) {
    for (Peer& peer : peers_) {
      for (const UcxLane lane : {UcxLane::kData, UcxLane::kControl}) {
        const bool is_open = peer.endpoints[static_cast<std::size_t>(lane)] != nullptr;
        if (is_open && peer.status == UCS_OK && !peer.said_goodbye) visit(peer, lane);
      }
    }
  }

  /// Waits until sent data has left this process.
  void flush(TimePoint deadline);
  /// Ends all connections.
  void close(TimePoint deadline);

 private:
  void open(Peer& peer, UcxLane lane);
  void wait_for(const std::vector<ucs_status_ptr_t>& requests, TimePoint deadline);

  const UcxLibrary& ucx_;
  ucp_worker_h worker_;
  std::vector<std::string> addresses_;
  std::vector<Peer> peers_;    // by rank; never grows, since endpoints point into it
  std::vector<Peer*> broken_;  // since `take_broken`, in the order in which UCX noticed
};

}  // namespace kolo
