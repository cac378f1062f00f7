#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/sim/sim_cluster.h"
#include "benchmarks/sim/sim_models.h"
#include "runtime/api/compression_stats.h"
#include "runtime/api/options.h"

namespace kolo::bench {

struct StepSpec {
  ModelPreset model;
  double flops_per_us = 60e6;  ///< Sustained rate of a rank: 60 Tflop/s.
  std::optional<double> compute_us =
      {};  ///< Of one rank's forward and backward; else from the flops.
  std::optional<DType> wire_dtype = {};
  /// Compression as in the option `compression`. Host memory only.
  std::string compression = "none";
  std::size_t fusion_bytes = std::size_t{4} << 20;
  std::size_t device_fusion_bytes = kAutoBytes;
};

/// One training step, in microseconds.
struct StepTimes {
  double compute_us = 0;  ///< Time of a rank that is neither disturbed nor slow.
  double step_us = 0;     ///< Until all ranks have all sums.
  double exposed_us = 0;  ///< Time of the step beyond the slowest rank's compute.
  std::size_t buckets = 0;
  std::size_t sparse_buckets = 0;                   ///< Those of them that are sparse.
  std::size_t wire_bytes = 0;                       ///< Sent by the first rank to other nodes.
  std::vector<CompressionDecision> decisions = {};  ///< Choices that `compression` left open.

  /// Efficiency of a job whose work grows with its ranks: T(1) / T(n).
  double efficiency() const { return compute_us / step_us; }
};

/// Predicts one step: forward, then backward from the last layer to the first. A gradient is ready
/// when the operations of its layer and of all later layers are done; a bucket when its gradients
/// are ready on all ranks and these have agreed. Compute and communication do not slow each other
/// down, and the next step begins when the last bucket is done.
///
/// Sparse gradients are in the groups that the runtime would make. The chooser decides open choices
/// as it does there: by the cluster's costs, and by the time of a dense step.
///
/// Errors: as `Cluster::run`, and KoloError(kConfig) for a compression that cannot be read.
StepTimes predict_step(Cluster& cluster, const StepSpec& spec);

}  // namespace kolo::bench
