#pragma once

#include <cstddef>

namespace kolo {

/// As the peer of a receive: whichever rank sends first.
inline constexpr int kAnyRank = -1;

/// What a receive got.
struct Received {
  int source = kAnyRank;  ///< Rank that sent it.
  std::size_t count = 0;  ///< Number of elements, at most those of the buffer.
};

}  // namespace kolo
