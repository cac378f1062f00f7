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
  /// In the order in which a program registers them, first layer first.
  std::vector<GradientSpec> gradients = {};
  /// Floating-point operations per sample of each gradient's layer, forward; the operations of
  /// biases and norms are counted with the weight. Backward takes twice as many.
  std::vector<double> flops = {};
  int batch = 1;  ///< Samples per rank and step, unless told otherwise.

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

// --- other collectives ---------------------------------------------------------------------------

/// The time of one algorithm for a collective other than all-reduce.
struct CollectiveTime {
  std::string algorithm;
  bool is_choice = false;   ///< Of "auto".
  double predicted_us = 0;  ///< Its price.
  double simulated_us = 0;  ///< Its schedules on virtual time.
};

/// Plays each algorithm that serves the collective and has a price for it; in the memory of a
/// device, mirrors too. One call of a device's library takes its price. Parts are equal,
/// `bytes` in all in float32, of an all-to-all those of one rank, out of place but for a broadcast.
/// Errors: those of `even_goal` and `Cluster::schedules`.
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

/// Kolo's rows of such a file, in host memory. `column` is the time to read: "time_us",
/// "median_us", "min_us" or "p99_us". Errors: KoloError(kIo) or (kData) naming the file and the
/// mistake.
std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column);

/// The time that `costs` predict for a row, of successive iterations: links that let a burst pass
/// save it up only if they have time. Without a chunk_bytes in `compile`, chunks are sized as by
/// the runtime. Errors: KoloError(kData) if its ranks do not fill its nodes evenly; as
/// `Cluster::run`.
double predict_us(const MeasuredRow& row, const MachineCosts& costs, const CompileOptions& compile);

}  // namespace kolo::bench
