#pragma once

#include <cstddef>

namespace kolo {

/// Peer of a receive that accepts a message from any rank.
inline constexpr int kAnyRank = -1;

/// Result of a receive.
struct Received {
  int source = kAnyRank;  ///< Rank that sent the message.
  std::size_t count = 0;  ///< Number of elements received; at most that of the buffer.
};

}  // namespace kolo
