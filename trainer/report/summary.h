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

/// One point of a loss curve.
struct CurvePoint {
  std::size_t step;
  double seconds;     ///< Time since training began, without evaluation.
  double train_loss;  ///< Nats per row, over all ranks, since the previous point.
  std::optional<double> eval_loss;
  std::optional<double> eval_metric;
};

/// The outcome of a job. Times are medians over steps, on this rank.
struct Summary {
  std::string model;
  int ranks = 1;
  int nodes = 1;
  std::string device;
  std::string precision;  ///< Dtype of the model's arithmetic.
  std::string wire;
  std::string compression;
  std::string algorithm;
  std::size_t steps = 0;
  std::size_t skipped_steps = 0;  ///< Steps skipped because gradients overflowed.
  double loss_scale = 1.0;        ///< At the end of training; 1 without loss scaling.
  double epochs = 0.0;
  double train_loss = 0.0;
  double eval_loss = 0.0;
  Metric metric;  ///< The task's metric.
  double eval_metric = 0.0;
  std::size_t eval_samples = 0;              ///< Samples per evaluation.
  std::optional<double> eval_bits_per_byte;  ///< Text only: held-out loss per byte of text.
  double samples_per_s = 0.0;                ///< Rate of all ranks, without evaluation.
  std::optional<double> tokens_per_s = std::nullopt;  ///< Text only.
  double step_ms = 0.0;
  double compute_ms = 0.0;       ///< Step time without exposed communication.
  double exposed_comm_ms = 0.0;  ///< See StepReport::exposed.
  double data_wait_ms = 0.0;     ///< Time that a step waited for its samples; the mean, not the
                                 ///< median.
  std::uint64_t wire_bytes_per_step = 0;  ///< Between nodes, summed over all ranks; the mean.
  std::vector<CompressionStats> compression_groups;  ///< On rank 0, in the last step.
  std::vector<CompressionDecision> compression_decisions;
  std::size_t fusion_bytes = 0;
  std::string shard;  ///< State that is sharded over ranks.
  // On this rank: optimizer state, and gradients other than rows.
  std::optional<std::size_t> optimizer_bytes = std::nullopt;
  std::optional<std::size_t> gradient_bytes = std::nullopt;
  std::uint64_t weights_hash = 0;
  double wall_s = 0.0;
  bool is_saved = true;  ///< Whether a run's last checkpoint was written. Not in the JSON.
  std::vector<CurvePoint> curve;
};

/// The result of evaluating weights on held-out data.
struct Evaluation {
  std::size_t samples = 0;
  double loss = 0.0;  ///< Mean over rows.
  Metric metric;
  double value = 0.0;                                  ///< The metric's value.
  std::optional<double> bits_per_byte = std::nullopt;  ///< Text only.
};

/// A JSON object with the fields above, the metric as "eval_NAME"; fields that do not apply are
/// null.
std::string to_json(const Summary& summary);
std::string to_json(const Evaluation& evaluation);

/// A line for people.
std::string to_line(const Summary& summary);
std::string to_line(const Evaluation& evaluation);

/// Lines "compression: …" with the runtime's decisions; empty if there are none.
std::string describe_decisions(const PlanSummary& plan);

/// Median; 0 if there are no values.
double median(std::vector<double> values);

/// Converts a curve to numbers for a checkpoint, five per point.
std::vector<double> numbers_of(const std::vector<CurvePoint>& curve);

/// The inverse of `numbers_of`. Ignores numbers after the last whole point.
std::vector<CurvePoint> curve_of(std::span<const double> numbers);

}  // namespace kolo::trainer
