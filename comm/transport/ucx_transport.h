#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/control_frames.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Messages between ranks through UCX, over the network transports it finds (`UCX_TLS=^sm` unless
/// the user sets UCX_TLS): within a node Kolo has shared memory of its own. There are connections
/// for data and others for control frames, which therefore never wait for data. Those to
/// `control_peers` are made by `connect`, the others when two ranks first have something to say.
/// Control frames of strangers are dropped, see `ForeignFrames`.
///
/// Before: every tag's `source` is the sending rank; UCX matches by tag alone. At most 65534 ranks.
/// Errors: construction throws the errors of `load_ucx`, and KoloError(kIo) with UCX's reason. A
///         peer whose process ends is reported as lost when UCX notices: at once on a live host,
///         never while a cut link or a frozen host keeps the connection silent; bounding that takes
///         heartbeats above this layer.
class UcxTransport : public NetworkTransport {
 public:
  struct Config {
    int rank = 0;
    int world_size = 1;
    std::string library = {};                                  ///< See `load_ucx`.
    std::string interface = {};                                ///< See `make_ucp_context`.
    std::string address = {};                                  ///< See `make_ucp_context`.
    std::vector<int> control_peers = {};                       ///< Ranks that agreement talks to.
    std::size_t longest_control_frame = std::size_t{1} << 30;  ///< Longer ones are strangers'.
    Duration shutdown_within = std::chrono::seconds(2);        ///< For telling peers goodbye.
  };

  static std::unique_ptr<UcxTransport> create(const Config& config);

  /// Those that came to the port of this rank.
  virtual const ForeignFrames& foreign_frames() const = 0;

  /// Whether messages travel over TCP: not where this machine has devices that move data by
  /// themselves, or the user's UCX_TLS leaves TCP out.
  static bool uses_tcp();
};

}  // namespace kolo
