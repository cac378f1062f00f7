#pragma once

#include <cstddef>
#include <string_view>

#include "trainer/loss/loss.h"

namespace kolo::trainer {

/// The state of training after some steps.
struct ProgressReport {
  std::size_t step;
  std::size_t total_steps;
  double seconds;  ///< Time since training began, without evaluation.
  double train_loss;
  double lr;
  double gradient_norm;
  double step_ms;
  double rate;           ///< Samples or tokens per second of all ranks.
  double exposed_share;  ///< Share of a step's time, 0 … 1.
  double seconds_left;
  std::size_t skipped_steps;  ///< Skipped steps so far.
};

/// Who is told how training goes. Exists on one rank only.
///
/// Threads: that of training. Errors: none; a listener that cannot write says so itself.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;

  /// Before the first step here, with the steps that were taken before, by a job that is resumed.
  virtual void begin(std::size_t step) = 0;
  virtual void report(const ProgressReport& report) = 0;
  /// During an evaluation, after `done` of `total` batches.
  virtual void evaluating(std::size_t done, std::size_t total) = 0;
  virtual void evaluation(std::size_t step, double loss, const Metric& metric, double value) = 0;
  /// Text for people.
  virtual void note(std::string_view text) = 0;
};

}  // namespace kolo::trainer
