#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compression/exchange_routes.h"
#include "topology/cost_model.h"

namespace kolo {

/// The ways in which a compression group may be reduced, preferred first among equals.
enum class ReducePath {
  kDense,           ///< float32.
  kDense16,         ///< 16-bit on the wire.
  kAllGather,       ///< Top-k, every rank's pairs to every rank.
  kOwnersPairwise,  ///< Top-k through owners, straight to each of them.
  kOwnersLogStep,   ///< Top-k through owners, in log2(ranks) rounds.
};
std::string_view to_string(ReducePath path);
/// The route of a path that is sparse.
std::optional<ExchangeRoute> route_of(ReducePath path);

/// What was measured once, by one rank, and is equal on all: choices from a rank's own clock would
/// differ between ranks.
struct CompressionCosts {
  LinkCost link = {};                     ///< Of one rank between the nodes.
  double selector_bytes_per_us = 10'000;  ///< What selection and casts move; 12 bytes an element.
  double pair_us = 0.02;                  ///< A pair on its whole way: sent, summed and received.
  double cores = 1;  ///< That a rank has to itself: less than 1 where all compute at once on fewer.
};

struct CompressionGroupShape {
  std::size_t count = 0;  ///< float32 elements.
  std::size_t pairs = 0;  ///< That each rank would send.
  int ranks = 1;
  double pair_bytes = 6;         ///< To the owners: a 16-bit value and an index.
  double result_pair_bytes = 8;  ///< Back: a float32 sum and an index.
  double overlap_us = 0;  ///< Of each path, hidden behind computation: worth nothing if saved.
};

struct PathPrediction {
  ReducePath path = ReducePath::kDense;
  double us = 0;
};

struct CompressionChoice {
  ReducePath path = ReducePath::kDense;
  std::string reason = {};                       ///< A sentence with the predictions that decided.
  std::vector<PathPrediction> predictions = {};  ///< One for each path, in order.
};

/// Predicted time of one all-reduce of the group.
///
/// Bytes:   dense 2 (P-1)/P of the group; all-gather (P-1) contributions; through owners (P-1)/P of
///          a contribution there and of a result back. By log steps each byte to the owners travels
///          once for every bit set in its distance, about log2(P) / 2 times.
/// Compute: what a rank does for elements and pairs, longer where ranks share cores. Casts go on
///          while bytes are on their way; selection comes before. By all-gather every rank sums the
///          pairs of all, which is about half of a pair's way.
/// Latency: of the dense paths that of halving and doubling, the lower one: what compression
///          competes with is the best dense algorithm.
/// Threads: pure; any.
double predict_us(ReducePath path, const CompressionGroupShape& group,
                  const CompressionCosts& costs);

/// The fastest path, but dense and float32 are left only for what takes visibly at most 1 / 1.2 of
/// their time: first for 16 bits, then, from the better of both, for the fastest sparse path.
/// A function of its arguments only, so that ranks agree and a run can be repeated.
CompressionChoice choose_path(const CompressionGroupShape& group, const CompressionCosts& costs);

inline constexpr double kLeastGain = 1.2;

}  // namespace kolo
