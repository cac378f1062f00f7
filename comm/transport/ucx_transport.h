#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/control_frames.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Sends messages between ranks through UCX, over the network transports that UCX finds. Without a
/// user's UCX_TLS it uses `^sm`, because Kolo has its own shared memory within a node. Data and
/// control frames use separate connections, so control frames never wait for data. `connect`
/// creates the connections to `control_peers`; other connections are created when two ranks first
/// communicate. Control frames that no rank of the job sent are dropped; see `ForeignFrames`.
///
/// Before: every tag's `source` is the sending rank, because UCX matches by tag alone. At most
/// 65534 ranks.
/// Errors: the constructor throws as `load_ucx`, and KoloError(kIo) with UCX's reason. A peer whose
/// process ends is reported as lost when UCX notices it: at once if its host runs, but never while
/// a cut link or a frozen host keeps the connection silent. Heartbeats in other layers limit that
/// time.
class UcxTransport : public NetworkTransport {
 public:
  struct Config {
    int rank = 0;
    int world_size = 1;
    std::string library = {};                                  ///< See `load_ucx`.
    std::string interface = {};                                ///< See `make_ucp_context`.
    std::string address = {};                                  ///< See `make_ucp_context`.
    std::vector<int> control_peers = {};                       ///< Ranks to connect at start.
    std::size_t longest_control_frame = std::size_t{1} << 30;  ///< Longer frames are dropped.
    Duration shutdown_within = std::chrono::seconds(2);        ///< Time limit of `shutdown`.
  };

  static std::unique_ptr<UcxTransport> create(const Config& config);

  /// Counts the foreign control frames that this rank received.
  virtual const ForeignFrames& foreign_frames() const = 0;

  /// Whether messages use TCP. True if this machine has no RDMA device and the user's UCX_TLS
  /// allows TCP.
  static bool uses_tcp();
};

}  // namespace kolo
