#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compression/compression_method.h"
#include "compression/sparse_exchange.h"

namespace kolo {

/// A way to reduce a compression bucket; a method with a codec takes a route.
struct ReducePath {
  const CompressionMethod* method = &methods::none;
  std::optional<ExchangeRoute> route = {};

  friend bool operator==(const ReducePath&, const ReducePath&) = default;
};
/// "dense", "dense 16-bit", "top-k through owners".
std::string to_string(const ReducePath& path);

/// A bucket and the time of its exchange.
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

/// Predicted time of one all-reduce of the bucket, from the needs of its method.
///
/// Bytes:   dense and through owners: (P-1)/P of a contribution to the owners and of a result back.
///          By log steps, a byte to the owners is sent once for every bit set in its distance,
/// about
///          log2(P) / 2 times. All-gather: P-1 contributions.
/// Compute: the work on elements and contributions, which takes longer where ranks share cores.
///          Casts of dense elements overlap with transfers; a codec's pass precedes them. By
///          all-gather every rank sums all contributions, which is about half of their total time.
/// Latency: once per round of messages, which are sent one after the other and travel concurrently.
///          All-gather: one round of P-1 messages; through owners: two such rounds, or by log steps
///          2 log2(P) rounds of one; dense paths: as halving and doubling, the lower value, because
///          compression competes with the best dense algorithm.
/// Threads: pure; any.
double predict_us(const ReducePath& path, const CompressedBucketShape& bucket,
                  const CompressionCosts& costs);

/// The part of the predicted time in which a core works on elements and pairs. If ranks share
/// cores, this time is taken from computation and cannot be hidden.
double work_us(const ReducePath& path, const CompressedBucketShape& bucket,
               const CompressionCosts& costs);

/// The fastest path of a method.
PathPrediction fastest_path(const CompressionMethod& method, const CompressedBucketShape& bucket,
                            const CompressionCosts& costs);

/// The path with the fastest exchange, except that a later method replaces an earlier one only if
/// it takes at most 1 / 1.2 of its time: first 16 bits against float32, then top-k against the
/// better of both. Depends only on its arguments, so ranks agree and a run can be repeated.
CompressionChoice choose_path(const CompressedBucketShape& bucket, const CompressionCosts& costs);

inline constexpr double kLeastGain = 1.2;

/// Measured training steps with only dense buckets. Equal on all ranks.
struct DenseSteps {
  double step_us = 0;
  double exposed_us = 0;  ///< Part of the step spent waiting for sums, not hidden by computation.

  friend bool operator==(const DenseSteps&, const DenseSteps&) = default;
};

struct StepChoice {
  std::vector<ReducePath> paths = {};  ///< One for each bucket.
  double step_us = 0;                  ///< Predicted time of a step with these paths.
  std::string reason = {};             ///< A sentence with measurements and predictions.
};

/// Chooses by the time of whole steps, which gain less than exchanges do: either all buckets dense,
/// or each bucket as `choose_path` decides among the methods up to a certain one.
///
///   overlap = dense exchanges - exposed            part of them that computation hid
///   visible = exchanges - overlap                  of any other choice
///   step    = measured - visible (dense) + visible (that choice)
///
/// The threshold is the same as for one exchange, applied to steps. Computation hides neither a
/// bucket with a codec that is ready last, because a bucket starts as a whole, nor work on shared
/// cores.
///
/// Shape:   `buckets` in the order in which they are ready, at least one.
/// Threads: pure; any. Equal arguments give equal choices.
StepChoice choose_step(std::span<const BucketExchange> buckets, const DenseSteps& measured);

}  // namespace kolo
