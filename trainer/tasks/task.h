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

/// A task: data, the loss that a model is trained with, and the metric that rates it.
struct Task {
  DataSplit data;
  std::size_t outputs;          ///< Numbers per row of the model's output.
  std::size_t rows_per_sample;  ///< Rows of the output per sample, each with its own loss.
  std::string unit;             ///< Unit of a row, for rates: "samples" or "tokens".
  Metric metric;
  /// Average bytes of text per held-out row; empty if rows are not text.
  std::optional<double> bytes_per_row = std::nullopt;
  /// Makes the loss for a batch of this many samples.
  std::function<std::unique_ptr<Loss>(std::size_t batch)> make_loss;
  /// Average number of rows with a target per training sample; empty if all rows have one.
  std::optional<double> mean_targets = std::nullopt;

  /// Average number of rows per sample that count. It is known before training, so that a row has
  /// the same weight in every step and for any number of ranks.
  double targets_per_sample() const {
    return mean_targets.value_or(static_cast<double>(rows_per_sample));
  }
  const SampleFormat& format() const { return data.train->format(); }

  /// A held-out loss as bits per byte of text, by which models with different tokenizers compare.
  /// Empty if rows are not text.
  std::optional<double> bits_per_byte(double nats_per_row) const {
    if (!bytes_per_row) return std::nullopt;
    return nats_per_row / (*bytes_per_row * std::numbers::ln2);
  }
};

/// A task that --task can name.
struct TaskEntry {
  std::string name;
  std::string help;  ///< A short description.

  /// Errors: KoloError(kData) if the samples do not fit the task.
  std::function<Task(const Config& config, DataSplit data)> make;

  /// Tasks whose data sets this task also reads.
  std::vector<std::string> also_reads_data_of = {};

  /// Options, such as "--dropout", that only some tasks read. It is an error to give an option that
  /// nothing in the job reads.
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

/// A task with one class per row: cross-entropy and accuracy.
Task classification_task(const Config& config, DataSplit data, std::size_t rows_per_sample,
                         std::string unit);

/// Throws KoloError(kData): `config.data` does not contain `wanted`.
[[noreturn]] void throw_wrong_samples(const Config& config, const std::string& wanted);

}  // namespace kolo::trainer
