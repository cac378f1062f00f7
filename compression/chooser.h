#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compression/compression_method.h"
#include "compression/sparse_exchange.h"

namespace kolo {

/// How a compressed bucket is all-reduced: a method and, if the method has a codec, its route.
struct ReducePath {
  const CompressionMethod* method = &methods::none;
  std::optional<ExchangeRoute> route = {};

  friend bool operator==(const ReducePath&, const ReducePath&) = default;
};
/// Returns a text such as "dense", "dense 16-bit" or "top-k through owners".
std::string to_string(const ReducePath& path);

/// A compressed bucket, and the costs that determine the time of its exchange.
struct BucketExchange {
  CompressedBucketShape shape = {};
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

/// Returns the predicted time of one all-reduce of the bucket, from the needs of its method.
///
/// Bytes:   for P ranks, dense and through owners: (P-1)/P of a contribution to the owners and
///          (P-1)/P of a result back. All-gather: P-1 contributions.
/// Compute: the work on elements and contributions, which takes longer if ranks share cores. Casts
///          of dense elements overlap with transfers; a codec's pass precedes them. By all-gather
///          every rank sums all contributions, which is about half of their total work.
/// Latency: once per round; the messages of a round are sent one after the other and travel
///          concurrently. All-gather: one round of P-1 messages. Through owners: two such rounds;
///          twice as many if a method exchanges two factors. Dense: as halving and doubling, the
///          lowest latency, because compression competes with the best dense algorithm.
/// Threads: pure; any.
double predict_us(const ReducePath& path, const CompressedBucketShape& bucket,
                  const CompressionCosts& costs);

/// Returns the part of the predicted time in which a core works on elements and pairs. If ranks
/// share cores, this time is taken from the caller's computation and cannot be hidden.
double work_us(const ReducePath& path, const CompressedBucketShape& bucket,
               const CompressionCosts& costs);

/// Returns the fastest path of a method.
PathPrediction fastest_path(const CompressionMethod& method, const CompressedBucketShape& bucket,
                            const CompressionCosts& costs);

/// Returns the path with the fastest exchange, except that a later method replaces an earlier one
/// only if it takes at most 1 / 1.2 of its time: first 16 bits against float32, then top-k against
/// the better of both. Equal arguments give equal choices on all ranks.
CompressionChoice choose_path(const CompressedBucketShape& bucket, const CompressionCosts& costs);

inline constexpr double kLeastGain = 1.2;

/// Measurements of training steps in which all buckets are dense. Equal on all ranks.
struct DenseSteps {
  double step_us = 0;
  double exposed_us = 0;  ///< Time per step that waits for sums, not hidden by computation.

  friend bool operator==(const DenseSteps&, const DenseSteps&) = default;
};

struct StepChoice {
  std::vector<ReducePath> paths = {};  ///< One for each bucket.
  double step_us = 0;                  ///< Predicted time of a step with `paths`.
  std::string reason = {};             ///< A sentence with measurements and predictions.
};

/// Chooses by the time of whole steps, because a faster exchange that computation hides does not
/// shorten a step. Either all buckets are dense, or for some method m each bucket uses the path
/// that `choose_path` would choose among the methods up to m.
///
///   overlap = dense exchanges - exposed            the time of exchanges that computation hides
///   visible = exchanges - overlap                  for any choice of paths
///   step    = measured - visible (dense) + visible (this choice)
///
/// The threshold is that of `choose_path`, applied to steps. Computation hides neither the last
/// bucket if it has a codec, because such a bucket starts only when it is complete, nor work on
/// shared cores.
///
/// Shape:   `buckets` in the order in which they are ready, at least one.
/// Threads: pure; any. Equal arguments give equal choices.
StepChoice choose_step(std::span<const BucketExchange> buckets, const DenseSteps& measured);

}  // namespace kolo
