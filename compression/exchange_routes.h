#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kolo {

/// The path of pairs to all ranks. It changes no bit of the result.
enum class ExchangeRoute : std::uint8_t {
  kAllGather,  ///< Every rank's pairs go to every rank; all compute as the owners do.
  kPairwise,   ///< Through owners, directly to each of them.
  kLogStep,    ///< Through owners, in log2(ranks) rounds each way.
};
std::string_view to_string(ExchangeRoute route);

/// The messages by which a payload from every rank for every other rank gets there.
///
/// Pairwise: each payload goes directly to its destination, to ranks + 1, + 2, ... in succession,
/// so that no two ranks send to the same one at a time. ranks - 1 messages per rank; no byte is
/// sent twice.
///
/// Log-step: in round b a rank forwards, to rank + 2^b, the payloads with bit b set in their
/// remaining distance. Fewer messages; each byte is sent about log2(ranks) / 2 times. For 4 ranks,
/// from rank 0:
///
///     distance        1        2        3
///     round 0      0 -> 1             0 -> 1
///     round 1               0 -> 2    1 -> 3
///
/// Payloads stay whole and separate, so the owner adds the same numbers in the same order.
///
/// Threads: pure; any.
/// Source:  Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8(11), 1997.

struct Forward {
  int source = 0;
  int destination = 0;
  friend bool operator==(const Forward&, const Forward&) = default;
};

/// Destination of message `step` of `rank`, of ranks - 1 messages counted from 0.
int pairwise_destination(int ranks, int rank, int step);

/// ceil(log2(ranks)).
int log_step_rounds(int ranks);
/// Destination of `rank` in `round`.
int log_step_peer(int ranks, int rank, int round);
/// The payloads that it sends there in one message, in ascending distance. It has received them in
/// earlier rounds, or is their source.
std::vector<Forward> log_step_forwards(int ranks, int rank, int round);

}  // namespace kolo
