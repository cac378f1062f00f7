#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kolo {

inline constexpr int kMaxTcpRanks = 1 << 20;

/// Where and as whom a rank joins a TCP rendezvous. All but `rank` must be equal on all ranks.
struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string host = "localhost";  ///< Of rank 0: name, IPv4 or IPv6 address.
  std::uint16_t port = 0;          ///< At rank 0; 0 is any free one and for tests only.
  std::string job_id;              ///< Tells this job from others that may use the same port.
  std::chrono::milliseconds timeout{60'000};  ///< To join, and then for each exchange.

  std::size_t max_contribution_bytes = std::size_t{4} << 20;  ///< What a rank may give at once.
  std::chrono::milliseconds hello_timeout{5'000};  ///< A connection that stays silent is dropped.
};

}  // namespace kolo
