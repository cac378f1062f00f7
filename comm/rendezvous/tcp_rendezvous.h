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

/// The options of a rank that joins a TCP rendezvous. All except `rank` must be equal on all ranks.
struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string host = "localhost";             ///< Host name or IP address of rank 0.
  std::uint16_t port = 0;                     ///< Port of rank 0. Tests use 0, for any free port.
  std::string job_id;                         ///< Distinguishes jobs that use the same port.
  std::chrono::milliseconds timeout{60'000};  ///< Limit for joining and for each exchange.

  /// Largest contribution of a rank to one exchange.
  std::size_t max_contribution_bytes = std::size_t{4} << 20;
  /// A connection that sends no hello for this long is dropped.
  std::chrono::milliseconds hello_timeout{5'000};
};

/// Creates a rendezvous that needs only the address of rank 0: rank 0 listens, the other ranks
/// connect, and exchanges use these connections. Data is not encrypted: use it only in trusted
/// networks.
///
/// Blocks until all ranks have joined.
/// Threads: one. Errors: UsageError if rank or size are out of range; errors of `TcpLobby`, equal
/// on every rank; KoloError(kIo) if rank 0 cannot listen; KoloError(kTimeout) with the cause if
/// rank 0 cannot be reached.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options);

/// As above, for rank 0 with a socket that already listens (see `listen_on`), so that the caller
/// can publish its port first.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options, FileDescriptor listener);

}  // namespace kolo
