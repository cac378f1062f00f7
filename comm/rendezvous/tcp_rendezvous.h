#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/base/unique_handle.h"
#include "comm/rendezvous/rendezvous.h"

namespace kolo {

inline constexpr int kMaxTcpRanks = 1 << 20;

/// How a rank joins a TCP rendezvous. All but `rank` must be equal on all ranks.
struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string host = "localhost";  ///< Host name or IP address of rank 0.
  std::uint16_t port = 0;          ///< Port of rank 0; 0 is any free port, for tests only.
  std::string job_id;              ///< Distinguishes this job from others that may use the same
                                   ///< port.
  std::chrono::milliseconds timeout{60'000};  ///< Limit for joining, and for each exchange.

  std::size_t max_contribution_bytes = std::size_t{4} << 20;  ///< Largest contribution of a rank to
                                                              ///< one exchange.
  std::chrono::milliseconds hello_timeout{5'000};  ///< A connection that stays silent for this long
                                                   ///< is dropped.
};

/// A rendezvous that needs only the address of rank 0, no launcher: rank 0 listens, the others
/// connect, and the connections are kept for the exchanges. Not encrypted: for trusted networks.
///
/// Blocks until all ranks have joined.
/// Threads: one. Errors: UsageError if rank or size are out of range; those of `TcpLobby`, the
///          same on every rank; KoloError(kIo) if rank 0 cannot listen, KoloError(kTimeout) with
///          the cause if rank 0 cannot be reached.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options);

/// Rank 0 with a socket that already listens, see `listen_on`, so that its port can be told to
/// others.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options, FileDescriptor listener);

}  // namespace kolo
