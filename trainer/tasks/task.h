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

/// Where data, model and loss meet: what is learnt from which samples, and how well.
struct Task {
  DataSplit data;
  std::size_t outputs;          ///< Numbers in a row of the model's output.
  std::size_t rows_per_sample;  ///< Rows of the output, each with a loss of its own.
  std::string unit;             ///< What a row is, for rates: "samples" or "tokens".
  Metric metric;
  /// Bytes of text that a held-out row stands for, on average; empty where rows are not of a text.
  std::optional<double> bytes_per_row = std::nullopt;
  /// Makes the loss of a batch of this many samples.
  std::function<std::unique_ptr<Loss>(std::size_t batch)> make_loss;
  /// Rows of a sample that have a target, on average over the training data, where some have none.
  std::optional<double> mean_targets = std::nullopt;

  /// Rows of a sample that count, on average. It is known before training, so that a row has the
  /// same weight in every step and on any number of ranks.
  double targets_per_sample() const {
    return mean_targets.value_or(static_cast<double>(rows_per_sample));
  }
  const SampleFormat& format() const { return data.train->format(); }

  /// A held-out loss as bits for each byte of text, which compares models of other tokens. Empty
  /// where rows are not of a text.
  std::optional<double> bits_per_byte(double nats_per_row) const {
    if (!bytes_per_row) return std::nullopt;
    return nats_per_row / (*bytes_per_row * std::numbers::ln2);
  }
};

/// A kind of task that --task can name.
struct TaskEntry {
  std::string name;
  std::string help;  ///< In a few words.

  /// Errors: KoloError(kData) if the samples are not of the task.
  std::function<Task(const Config& config, DataSplit data)> make;

  /// Tasks whose data sets are also data of this one.
  std::vector<std::string> also_reads_data_of = {};

  /// Options that not every task reads, as "--dropout". One that nothing in a job reads is an
  /// error.
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

/// Errors: KoloError(kData): `config.data` does not hold `wanted`.
[[noreturn]] void throw_wrong_samples(const Config& config, const std::string& wanted);

}  // namespace kolo::trainer
