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

/// The gradients of a model and the arithmetic of one sample, for predictions of step time.
struct ModelPreset {
  std::string name;
  /// In order of registration, first layer first.
  std::vector<GradientSpec> gradients = {};
  /// Floating-point operations per sample in the forward pass of each gradient's layer; operations
  /// of biases and norms are counted with the weight. The backward pass takes twice as many.
  std::vector<double> flops = {};
  int batch = 1;  ///< Default number of samples per rank and step.

  std::size_t parameters() const;
  double forward_flops() const;
};

/// "resnet50": 25.6 M parameters, images of 224 x 224. "gpt1b": 1.0 B parameters, 22 blocks of
/// width 1792, sequences of 1024 tokens. Errors: KoloError(kConfig) naming the known models.
ModelPreset model_preset(const std::string& name);

struct StepSpec {
  ModelPreset model;
  double flops_per_us = 60e6;  ///< Sustained rate of a rank: 60 Tflop/s.
  std::optional<double> compute_us =
      {};  ///< One rank's forward and backward time; empty: from the flops.
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
  double exposed_us = 0;  ///< Time of the step beyond the slowest rank's computation.
  std::size_t buckets = 0;
  std::size_t sparse_buckets = 0;                   ///< Number of sparse buckets.
  std::size_t wire_bytes = 0;                       ///< Sent by the first rank to other nodes.
  std::vector<CompressionDecision> decisions = {};  ///< Choices that `compression` left open.

  /// Efficiency of a job whose work grows with its number of ranks: T(1) / T(n).
  double efficiency() const { return compute_us / step_us; }
};

/// Predicts one step: forward, then backward from the last layer to the first. A gradient is ready
/// when the operations of its layer and all later layers are done; a bucket starts when its
/// gradients are ready on all ranks and the ranks have agreed. Computation and communication do not
/// slow each other down, and the next step begins when the last bucket is done.
///
/// Sparse gradients form the groups that the runtime would form. Open choices are made as in the
/// runtime: from the cluster's costs and the time of a dense step.
///
/// Errors: as `Cluster::run`, and KoloError(kConfig) for a compression that cannot be read.
StepTimes predict_step(Cluster& cluster, const StepSpec& spec);

// --- other collectives ---------------------------------------------------------------------------

/// The time of one algorithm for a collective other than all-reduce.
struct CollectiveTime {
  std::string algorithm;
  bool is_choice = false;   ///< Whether "auto" chooses it.
  double predicted_us = 0;  ///< The algorithm's price.
  double simulated_us = 0;  ///< The time of its schedules in the simulation.
};

/// Simulates each algorithm that serves the collective and has a price for it; in device memory
/// also through bounce buffers. One call of a device's native library takes its price. Parts are
/// equal and have `bytes` in total in float32 (for an all-to-all, the parts of one rank), out of
/// place except for a broadcast. Errors: those of `even_spec` and `Cluster::schedules`.
std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes);

// --- rows of kolo-bench --------------------------------------------------------------------------

/// One measured all-reduce, as `kolo-bench all-reduce --json` writes it.
struct MeasuredRow {
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  std::string algorithm;
  int ranks = 1;
  int nodes = 1;
  Placement placement = Placement::kInPlace;
  double time_us = 0;
  std::string link_costs = {};  ///< As measured at the start of the job.
};

/// Kolo's rows for host memory in a file of `kolo-bench all-reduce --json`. `column` is the time to
/// read: "time_us", "median_us", "min_us" or "p99_us". Errors: KoloError(kIo) or (kData) naming the
/// file and the mistake.
std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column);

/// The time that `costs` predict for a row of successive iterations: links with bursts save them up
/// only if there is time. Without a chunk_bytes in `compile`, chunks have the runtime's size.
/// Errors: KoloError(kData) if the row's ranks do not fill its nodes evenly; as `Cluster::run`.
double predict_us(const MeasuredRow& row, const MachineCosts& costs, const CompileOptions& compile);

}  // namespace kolo::bench
