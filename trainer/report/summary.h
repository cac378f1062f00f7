#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/loss/loss.h"

namespace kolo::trainer {

/// A point of a job's loss curve.
struct CurvePoint {
  std::size_t step;
  double seconds;     ///< Training time in seconds, without evaluations.
  double train_loss;  ///< Mean loss per row over all ranks since the previous point; over this
                      ///< rank if ranks go at their own pace and do not meet at this point.
  std::optional<double> eval_loss;
  std::optional<double> eval_metric;
};

/// The result of a job. Times ending in _ms are medians over this rank's steps, unless noted.
struct Summary {
  std::string model;
  int ranks = 1;
  int nodes = 1;
  std::string device;
  std::string precision;  ///< Dtype of the operands of products.
  std::string wire;
  std::string compression;
  std::string algorithm;
  std::size_t steps = 0;
  std::size_t skipped_steps = 0;  ///< Number of steps skipped because gradients overflowed.
  double loss_scale = 1.0;        ///< Loss scale at the end of training; 1 without loss scaling.
  double epochs = 0.0;
  double train_loss = 0.0;
  double eval_loss = 0.0;
  Metric metric;  ///< The task's metric.
  double eval_metric = 0.0;
  std::size_t eval_samples = 0;              ///< Number of samples per evaluation.
  std::optional<double> eval_bits_per_byte;  ///< Held-out loss in bits per byte of text, if any.
  double samples_per_s = 0.0;                ///< Of all ranks, without evaluations.
  std::optional<double> tokens_per_s = std::nullopt;  ///< Tokens per second of all ranks, if any.
  double step_ms = 0.0;
  double compute_ms = 0.0;       ///< Time of a step without exposed communication.
  double exposed_comm_ms = 0.0;  ///< Exposed communication of a step; see StepReport::exposed.
  double data_wait_ms = 0.0;     ///< Time in which a step waited for samples; the mean over steps.
  std::uint64_t wire_bytes_per_step = 0;  ///< Mean bytes between nodes per step, of all ranks.
  std::vector<CompressionStats> compression_groups;  ///< Of sparse gradients in the last step.
  std::vector<CompressionDecision> compression_decisions;
  std::size_t fusion_bytes = 0;
  std::string shard;  ///< State that is sharded over ranks: "none", "optimizer" or "gradients".
  // Bytes on this rank: of optimizer state, of gradients other than rows, and of activations.
  std::optional<std::size_t> optimizer_bytes = std::nullopt;
  std::optional<std::size_t> gradient_bytes = std::nullopt;
  std::optional<std::size_t> activation_bytes = std::nullopt;
  std::vector<std::uint64_t> parameters_per_rank;  ///< Trained elements, by rank.
  /// Share of the time of a step's passes in which ranks wait for other stages, the mean of all
  /// ranks; empty if there are no stages.
  std::optional<double> bubble = std::nullopt;
  std::uint64_t weights_hash = 0;
  double wall_s = 0.0;
  bool is_saved = true;  ///< Whether the run's last checkpoint was written; not in the JSON.
  std::vector<CurvePoint> curve;
};

/// The result of evaluating weights on held-out data.
struct Evaluation {
  std::size_t samples = 0;
  double loss = 0.0;  ///< Mean loss per row.
  Metric metric;
  double value = 0.0;                                  ///< Value of the metric.
  std::optional<double> bits_per_byte = std::nullopt;  ///< Held-out bits per byte, if any.
};

/// A JSON object with the fields above. The metric is called "eval_NAME"; empty fields are null.
std::string to_json(const Summary& summary);
std::string to_json(const Evaluation& evaluation);

/// One line that describes the result to users.
std::string to_line(const Summary& summary);
std::string to_line(const Evaluation& evaluation);

/// The runtime's decisions as lines "compression: …"; empty if there are none.
std::string describe_decisions(const PlanSummary& plan);

/// The median; 0 if there are no values.
double median(std::vector<double> values);

/// Converts a curve to numbers for a checkpoint, five per point.
std::vector<double> numbers_of(const std::vector<CurvePoint>& curve);

/// The inverse of `numbers_of`. It ignores numbers after the last whole point.
std::vector<CurvePoint> curve_of(std::span<const double> numbers);

}  // namespace kolo::trainer
