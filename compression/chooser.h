#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compression/sparse_exchange.h"
#include "topology/link_costs.h"

namespace kolo {

/// The paths by which a compression group may be reduced; among equals the first one is preferred.
enum class ReducePath {
  kDense,           ///< Dense float32.
  kDense16,         ///< Dense, 16 bits on the wire.
  kAllGather,       ///< Top-k; every rank's pairs go to every rank.
  kOwnersPairwise,  ///< Top-k through owners, directly to each of them.
  kOwnersLogStep,   ///< Top-k through owners, in log2(ranks) rounds.
};
std::string_view to_string(ReducePath path);
/// The route of a sparse path.
std::optional<ExchangeRoute> route_of(ReducePath path);

/// Measurements that one rank made once; equal on all ranks, because choices from each rank's own
/// clock would differ.
struct CompressionCosts {
  LinkCost link = {};                     ///< Link of one rank between nodes.
  double message_us = 0;                  ///< Time of a rank for each message that it sends.
  double selector_bytes_per_us = 10'000;  ///< Rate of selection and casts; 12 bytes per element.
  double pair_us = 0.02;                  ///< Time of a pair in total: sent, summed and received.
  double cores = 1;  ///< Cores that a rank has to itself; below 1 where ranks share cores.
};

struct CompressionGroupShape {
  std::size_t count = 0;  ///< Number of float32 elements.
  std::size_t pairs = 0;  ///< Number of pairs that each rank would send.
  int ranks = 1;
  double pair_bytes = 6;         ///< To the owners: a 16-bit value and an index.
  double result_pair_bytes = 8;  ///< Back: a float32 sum and an index.
};

/// A group and the time of its exchange.
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
  std::string reason = {};  ///< A sentence with the predictions that led to the choice.
  std::vector<PathPrediction> predictions = {};  ///< One for each path, in order.
};

/// Predicted time of one all-reduce of the group.
///
/// Bytes:   dense: 2 (P-1)/P of the group. All-gather: P-1 contributions. Through owners: (P-1)/P
/// of a contribution to them and of a result back. By log steps a byte to the owners is sent once
/// for every bit set in its distance, about log2(P) / 2 times.
/// Compute: the work on elements and pairs, which takes longer where ranks share cores. Casts
/// overlap
///          with transfers; selection precedes them. By all-gather every rank sums the pairs of
///          all, which is about half of a pair's total time.
/// Latency: once for each round of messages, which are sent one after the other and are on their
///          way together. All-gather: one round of P-1; through owners: two, or by log steps
///          2 log2(P) of one; dense paths: as halving and doubling, the lower one, because
///          compression competes with the best dense algorithm.
/// Threads: pure; any.
double predict_us(ReducePath path, const CompressionGroupShape& group,
                  const CompressionCosts& costs);

/// The part of it in which a core works on elements and pairs. Where ranks share cores, this time
/// is taken from computation and nothing hides it.
double work_us(ReducePath path, const CompressionGroupShape& group, const CompressionCosts& costs);

/// The path with the fastest exchange, except that float32 and dense are left only for a path that
/// takes at most 1 / 1.2 of their time: first for 16 bits, then, from the better of both, for the
/// fastest sparse path. A function of its arguments only, so ranks agree and a run can be repeated.
CompressionChoice choose_path(const CompressionGroupShape& group, const CompressionCosts& costs);

inline constexpr double kLeastGain = 1.2;

/// Measured training steps in which all groups were dense. Equal on all ranks.
struct DenseSteps {
  double step_us = 0;
  double exposed_us = 0;  ///< Part of the step spent waiting for sums, which no computation hid.

  friend bool operator==(const DenseSteps&, const DenseSteps&) = default;
};

struct StepChoice {
  std::vector<ReducePath> paths = {};  ///< One for each group.
  double step_us = 0;                  ///< Predicted time of a step with these paths.
  std::string reason = {};             ///< A sentence with measurements and predictions.
};

/// Chooses by the time of whole steps, which gain less than exchanges do: the groups' choices by
/// `choose_path`, with at most 16 bits among them, or dense.
///
///   overlap = dense exchanges - exposed            part of them that computation hid
///   visible = exchanges - overlap                  of any other choice
///   step    = measured - visible (dense) + visible (that choice)
///
/// The rule is that of one exchange, applied to steps: 16 bits have to make them 1.2 times as
/// short, top-k 1.2 times as short as the better of dense and 16 bits. Nothing hides a sparse group
/// that is ready last, because a group starts as a whole, nor work on shared cores.
///
/// Shape:   `groups` in the order in which they are ready, at least one.
/// Threads: pure; any. Equal arguments give equal choices.
StepChoice choose_step(std::span<const GroupExchange> groups, const DenseSteps& measured);

}  // namespace kolo
