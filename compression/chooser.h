#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compression/compression_method.h"
#include "compression/sparse_exchange.h"

namespace kolo {

/// A way to reduce a compression group; a method with a codec takes a route.
struct ReducePath {
  const CompressionMethod* method = &methods::none;
  std::optional<ExchangeRoute> route = {};

  friend bool operator==(const ReducePath&, const ReducePath&) = default;
};
/// "dense", "dense 16-bit", "top-k through owners".
std::string to_string(const ReducePath& path);

/// A group and the time of its exchange.
struct GroupExchange {
  CompressionGroupShape shape = {};
  CompressionCosts costs = {};
};

struct PathPrediction {
  ReducePath path = {};
  double us = 0;
};

struct CompressionChoice {
  ReducePath path = {};
  std::string reason = {};  ///< A sentence with the predictions that led to the choice.
};

/// Predicted time of one all-reduce of the group, by what its method needs.
///
/// Bytes:   dense and through owners: (P-1)/P of a contribution to them and of a result back. By
///          log steps a byte to the owners is sent once for every bit set in its distance, about
///          log2(P) / 2 times. All-gather: P-1 contributions.
/// Compute: the work on elements and contributions, which takes longer where ranks share cores.
///          Casts of dense elements overlap with transfers; a codec's pass precedes them. By
///          all-gather every rank sums all contributions, which is about half of their total time.
/// Latency: once for each round of messages, which are sent one after the other and are on their
///          way together. All-gather: one round of P-1; through owners: two, or by log steps
///          2 log2(P) of one; dense paths: as halving and doubling, the lower one, because
///          compression competes with the best dense algorithm.
/// Threads: pure; any.
double predict_us(const ReducePath& path, const CompressionGroupShape& group,
                  const CompressionCosts& costs);

/// The part of it in which a core works on elements and pairs. Where ranks share cores, this time
/// is taken from computation and nothing hides it.
double work_us(const ReducePath& path, const CompressionGroupShape& group,
               const CompressionCosts& costs);

/// The fastest path of a method.
PathPrediction fastest_path(const CompressionMethod& method, const CompressionGroupShape& group,
                            const CompressionCosts& costs);

/// The path with the fastest exchange, except that a method is left for a later one only if this
/// takes at most 1 / 1.2 of its time: float32 for 16 bits, then the better of both for top-k. A
/// function of its arguments only, so ranks agree and a run can be repeated.
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

/// Chooses by the time of whole steps, which gain less than exchanges do: all dense, or the groups'
/// choices by `choose_path` among the methods up to some one.
///
///   overlap = dense exchanges - exposed            part of them that computation hid
///   visible = exchanges - overlap                  of any other choice
///   step    = measured - visible (dense) + visible (that choice)
///
/// The rule is that of one exchange, applied to steps. Nothing hides a group with a codec that is
/// ready last, because a group starts as a whole, nor work on shared cores.
///
/// Shape:   `groups` in the order in which they are ready, at least one.
/// Threads: pure; any. Equal arguments give equal choices.
StepChoice choose_step(std::span<const GroupExchange> groups, const DenseSteps& measured);

}  // namespace kolo
