#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/loss/loss.h"

namespace kolo::trainer {

struct Config;

/// A task: the data, the loss for training, and the metric that rates a model.
struct Task {
  DataSplit data;
  std::size_t outputs;          ///< Numbers per row of the model's output.
  std::size_t rows_per_sample;  ///< Rows of the output per sample; each row has its own loss.
  std::string unit;             ///< What a row is, for reports: "samples", "tokens" or "hidden
                                ///< words".
  Metric metric;
  /// Average bytes of text per held-out row; empty if rows are not text.
  std::optional<double> bytes_per_row = std::nullopt;
  /// Makes the loss for batches of `batch` samples, of whose classes `ranks` have parts.
  std::function<std::unique_ptr<Loss>(std::size_t batch, const TensorRanks& ranks)> make_loss;
  /// Average number of rows with a target per training sample; empty if all rows have a target.
  std::optional<double> mean_targets = std::nullopt;

  /// The average number of rows per sample that count. It is known before training, so a row has
  /// the same weight in every step and for any number of ranks.
  double targets_per_sample() const {
    return mean_targets.value_or(static_cast<double>(rows_per_sample));
  }
  const SampleFormat& format() const { return data.train->format(); }

  /// Converts a held-out loss to bits per byte of text, which compares models with different
  /// tokenizers. Empty if rows are not text.
  std::optional<double> bits_per_byte(double nats_per_row) const {
    if (!bytes_per_row) return std::nullopt;
    return nats_per_row / (*bytes_per_row * std::numbers::ln2);
  }
};

/// A task that users can choose with --task.
struct TaskEntry {
  std::string name;
  std::string help;  ///< Short description of the task.

  /// Makes the task from data. Errors: KoloError(kData) if the samples do not fit the task;
  /// KoloError(kConfig) if an option that the task needs is not set.
  std::function<Task(const Config& config, DataSplit data)> make;

  /// Names of other tasks whose data formats this task can read, too.
  std::vector<std::string> also_reads_data_of = {};

  /// Options, such as "--label-smoothing", that this task reads and others may not. Giving an
  /// option that nothing in the job reads is an error.
  std::vector<std::string> reads = {};

  bool reads_data_of(const std::string& task) const {
    return task == name || std::ranges::count(also_reads_data_of, task) > 0;
  }
};

TaskEntry image_classification();
TaskEntry text_classification();
TaskEntry language_model();
TaskEntry rating();
TaskEntry masked_tokens();

/// Makes a task with one class per row: its loss is cross-entropy, its metric accuracy.
Task classification_task(const Config& config, DataSplit data, std::size_t rows_per_sample,
                         std::string unit);

/// Throws KoloError(kData): the task config.task needs samples with `wanted`.
[[noreturn]] void throw_wrong_samples(const Config& config, const std::string& wanted);

}  // namespace kolo::trainer
