#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

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
  /// Makes the loss of a batch of this many samples.
  std::function<std::unique_ptr<Loss>(std::size_t batch)> make_loss;

  const SampleFormat& format() const { return data.train->format(); }
};

/// A kind of task that --task can name.
struct TaskEntry {
  std::string name;
  std::string help;  ///< In a few words.

  /// Errors: KoloError(kData) if the samples are not of the task.
  std::function<Task(const Config& config, DataSplit data)> make;
};

TaskEntry image_classification();
TaskEntry text_classification();
TaskEntry language_model();
TaskEntry rating();

/// A task with one class per row: cross-entropy and accuracy.
Task classification_task(const Config& config, DataSplit data, std::size_t rows_per_sample,
                         std::string unit);

/// Errors: KoloError(kData): `config.data` does not hold `wanted`.
[[noreturn]] void throw_wrong_samples(const Config& config, const std::string& wanted);

}  // namespace kolo::trainer
