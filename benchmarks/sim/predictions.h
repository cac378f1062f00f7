#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/sim/sim_cluster.h"
#include "fusion/gradient.h"
#include "runtime/options/options.h"
#include "runtime/options/plan_summary.h"

namespace kolo::bench {

// --- training steps ------------------------------------------------------------------------------

/// The gradients of a model and the arithmetic of one sample, from which step times are predicted.
struct ModelPreset {
  std::string name;
  /// The gradients in order of registration, first layer first.
  std::vector<GradientSpec> gradients = {};
  /// Floating-point operations per sample in the forward pass, by gradient. The operations of a
  /// layer are counted with its weight, and 0 with its bias or norm. The backward pass takes twice
  /// as many.
  std::vector<double> flops = {};
  int batch = 1;  ///< Default number of samples per rank and step.

  std::size_t parameters() const;
  double forward_flops() const;
};

/// Returns a known model. "resnet50" has 25.6 M parameters and takes images of 224 x 224. "gpt1b"
/// has 1.0 B parameters in 22 blocks of width 1792 and takes sequences of 1024 tokens. Errors:
/// KoloError(kConfig) naming the known models.
ModelPreset model_preset(const std::string& name);

struct StepSpec {
  ModelPreset model;
  double flops_per_us = 60e6;  ///< Sustained rate of one rank: 60 Tflop/s.
  std::optional<double> compute_us =
      {};  ///< Time of one rank's forward and backward pass; empty: computed from the operations.
  std::optional<DType> wire_dtype = {};
  /// The value of the option `compression`. Supported in host memory only.
  std::string compression = "none";
  std::size_t fusion_bytes = std::size_t{4} << 20;
  std::size_t device_fusion_bytes = kAutoBytes;
};

/// The times of one training step, in microseconds.
struct StepTimes {
  double compute_us = 0;  ///< Time of a rank without lateness or slowness.
  double step_us = 0;     ///< Time until all ranks have all sums.
  double exposed_us = 0;  ///< Difference between step_us and the slowest rank's computing time.
  std::size_t buckets = 0;
  std::size_t sparse_buckets = 0;                   ///< Number of sparse buckets.
  std::size_t wire_bytes = 0;                       ///< Bytes that rank 0 sends to other nodes.
  std::vector<CompressionDecision> decisions = {};  ///< Where `compression` leaves a choice.

  /// Returns the efficiency T(1) / T(n) of a job whose work grows with its number of ranks.
  double efficiency() const { return compute_us / step_us; }
};

/// Predicts one step: a forward pass, then a backward pass from the last layer to the first. A
/// gradient is ready when its layer and all later layers are computed. A bucket starts when its
/// gradients are ready on all ranks and the ranks have agreed. Computation and communication do not
/// slow each other down, and the next step begins when the last bucket is done.
///
/// Compressed gradients are grouped as in the runtime. Open choices are made as in the runtime,
/// from the cluster's costs and the time of a dense step.
///
/// Errors: the errors of `Cluster::run`; KoloError(kConfig) if `compression` cannot be parsed.
StepTimes predict_step(Cluster& cluster, const StepSpec& spec);

// --- other collectives ---------------------------------------------------------------------------

/// The time of one algorithm for a collective other than all-reduce.
struct CollectiveTime {
  std::string algorithm;
  bool is_choice = false;   ///< Whether "auto" chooses this algorithm.
  double predicted_us = 0;  ///< Time by the cost model.
  double simulated_us = 0;  ///< Time of the algorithm's schedules in the simulation.
};

/// Simulates each algorithm that supports the collective and has a price in the cost model; in
/// device memory, also with bounce buffers. A single call of the device's native library takes the
/// time of the cost model. Parts are equal float32 parts of `bytes` in total (in an all-to-all, the
/// parts of one rank). Only a broadcast is in place. Errors: those of `even_spec` and
/// `Cluster::schedules`.
std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes);

// --- rows of kolo-bench --------------------------------------------------------------------------

/// One measured all-reduce, read from the file that `kolo-bench all-reduce --json` writes.
struct MeasuredRow {
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  DType wire = DType::kFloat32;  ///< Dtype in messages.
  std::string algorithm;         ///< A name, or "auto".
  int ranks = 1;
  int nodes = 1;
  bool in_arena = true;
  bool in_place = true;  ///< Contribution and result share one buffer.
  double time_us = 0;
  std::string link_costs = {};  ///< Link costs that the job measured at its start.

  /// Whether the benchmark copied contributions to a gradient set, which is in place.
  bool is_copied_first() const { return !in_place && (in_arena || wire != dtype); }
  BucketLayout layout() const {
    return {.count = bytes / size_of(dtype),
            .dtype = wire,
            .placement = wire != dtype ? Placement::kStaged
                         : in_arena    ? Placement::kInPlace
                                       : Placement::kUser,
            .out_of_place = !in_place};
  }
};

/// Reads Kolo's rows for host memory from a file of `kolo-bench all-reduce --json`, except those
/// that are copied first or lack the time. `column` is the time to read: "time_us", "median_us",
/// "min_us" or "p99_us". Errors: KoloError(kIo) or KoloError(kData) naming the file and the
/// mistake, such as rows of another collective.
std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column);

/// Returns the time that `costs` predict for a row of successive iterations. A link saves up bytes
/// for a burst only while it is idle. If `compile` has no chunk_bytes, chunks have the runtime's
/// default size. Errors: KoloError(kData) if the row's nodes do not have equally many ranks; the
/// errors of `Cluster::run`.
double predict_us(const MeasuredRow& row, const MachineCosts& costs, const CompileOptions& compile);

}  // namespace kolo::bench
