#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/control_frames.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Messages between ranks through UCX, over the network transports that it finds (`UCX_TLS=^sm`
/// unless the user sets UCX_TLS, since Kolo has its own shared memory within a node). Data and
/// control frames use separate connections, so control frames never wait for data. `connect`
/// creates the connections to `control_peers`; others are created when two ranks first communicate.
/// Control frames of strangers are dropped, see `ForeignFrames`.
///
/// Before: every tag's `source` is the sending rank; UCX matches by tag alone. At most 65534 ranks.
/// Errors: construction throws the errors of `load_ucx`, and KoloError(kIo) with UCX's reason. A
///         peer whose process ends is reported as lost when UCX notices: at once on a live host,
/// but
///         never while a cut link or a frozen host keeps the connection silent; only heartbeats
///         above this layer bound that time.
class UcxTransport : public NetworkTransport {
 public:
  struct Config {
    int rank = 0;
    int world_size = 1;
    std::string library = {};                                  ///< See `load_ucx`.
    std::string interface = {};                                ///< See `make_ucp_context`.
    std::string address = {};                                  ///< See `make_ucp_context`.
    std::vector<int> control_peers = {};                       ///< Ranks that agreement
                                                               ///< communicates with.
    std::size_t longest_control_frame = std::size_t{1} << 30;  ///< Longer frames are treated as
                                                               ///< foreign.
    Duration shutdown_within = std::chrono::seconds(2);        ///< Time limit for saying goodbye to
                                                               ///< peers.
  };

  static std::unique_ptr<UcxTransport> create(const Config& config);

  /// Foreign frames that arrived at the port of this rank.
  virtual const ForeignFrames& foreign_frames() const = 0;

  /// Whether messages use TCP: false if this machine has RDMA devices, or if the user's UCX_TLS
  /// excludes TCP.
  static bool uses_tcp();
};

}  // namespace kolo
