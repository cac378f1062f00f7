#include "compression/exchange_routes.h"

#include <bit>

namespace kolo {

std::string_view to_string(ExchangeRoute route) {
  switch (route) {
    case ExchangeRoute::kAllGather:
      return "allgather";
    case ExchangeRoute::kPairwise:
      return "pairwise";
    case ExchangeRoute::kLogStep:
      return "logstep";
  }
  return "unknown";
}

int pairwise_destination(int ranks, int rank, int step) { return (rank + 1 + step) % ranks; }

int log_step_rounds(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1));
}

int log_step_peer(int ranks, int rank, int round) { return (rank + (1 << round)) % ranks; }

std::vector<Forward> log_step_forwards(int ranks, int rank, int round) {
  std::vector<Forward> forwards;
  const int bit = 1 << round;
  for (int distance = 1; distance < ranks; ++distance) {
    if ((distance & bit) == 0) continue;
    const int gone = distance & (bit - 1);
    const int source = (rank - gone + ranks) % ranks;
    forwards.push_back({.source = source, .destination = (source + distance) % ranks});
  }
  return forwards;
}

}  // namespace kolo
