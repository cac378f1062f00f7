#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compression/exchange_routes.h"
#include "topology/link_costs.h"

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
};

/// A group and what its exchange costs.
struct GroupExchange {
  CompressionGroupShape shape = {};
  CompressionCosts costs = {};
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

/// The part of it in which a core works on elements and pairs. Where ranks share cores, it takes
/// that from what computes, and nothing hides it.
double work_us(ReducePath path, const CompressionGroupShape& group, const CompressionCosts& costs);

/// The path with the fastest exchange, but dense and float32 are left only for what takes at most
/// 1 / 1.2 of their time: first for 16 bits, then, from the better of both, for the fastest sparse
/// path. A function of its arguments only, so that ranks agree and a run can be repeated.
CompressionChoice choose_path(const CompressionGroupShape& group, const CompressionCosts& costs);

inline constexpr double kLeastGain = 1.2;

/// Training steps in which all groups travelled dense, as they were measured. Equal on all ranks.
struct DenseSteps {
  double step_us = 0;
  double exposed_us = 0;  ///< Of it, waiting for sums: what no computation hid.

  friend bool operator==(const DenseSteps&, const DenseSteps&) = default;
};

struct StepChoice {
  std::vector<ReducePath> paths = {};  ///< One for each group.
  double step_us = 0;                  ///< Predicted, with these.
  std::string reason = {};             ///< A sentence with what was measured and predicted.
};

/// What whole steps are worth, which is less than exchanges are: the groups' choices by
/// `choose_path`, of these at most 16 bits, or dense.
///
///   overlap = dense exchanges - exposed            what computation hid of them
///   visible = exchanges - overlap                  of any other way to exchange
///   step    = measured - visible (dense) + visible (that way)
///
/// The same rule as for one exchange, but for steps: 16 bits have to make them 1.2 times as short,
/// top-k 1.2 times as short as the better of dense and 16 bits. Nothing hides a sparse group that
/// is ready last, since a group begins as a whole; nor work on shared cores.
///
/// Shape:   `groups` in the order in which they are ready, at least one.
/// Threads: pure; any. Equal arguments give equal choices.
StepChoice choose_step(std::span<const GroupExchange> groups, const DenseSteps& measured);

}  // namespace kolo
