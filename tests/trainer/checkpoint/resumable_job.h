#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>

#include "tests/trainer/training_job.h"

namespace kolo::trainer {

// Small jobs that are stopped and resumed from a checkpoint. Ranks are threads.

inline constexpr int kRanks = 3;
inline constexpr std::size_t kSteps = 20;

/// Returns a job of 20 steps that reports every third step. Some steps are at an uneven epoch end.
inline Config resumable_job(const std::string& model, const TemporaryDirectory& directory) {
  Config config = small_job(model, directory);
  config.steps = kSteps;
  config.batch = 4;
  config.log_every = 3;
  config.eval_every = 7;
  config.warmup_steps = 3;
  return config;
}

inline Config in_run(Config config, const TemporaryDirectory& directory, const std::string& name) {
  config.run = directory.path() / name;
  config.resume = "auto";
  return config;
}

/// Trains until one rank (rank 1, or 0 if it is alone) asks to stop after `steps` steps. The ranks
/// agree to stop during the next step.
inline void train_until(std::size_t steps, int ranks, const Config& config) {
  std::atomic<std::size_t> asked = 0;
  const auto summaries =
      run_ranks_until([&](int rank) { return rank == (ranks > 1 ? 1 : 0) && ++asked >= steps; },
                      ranks, [&](int) { return config; });
  for (const auto& summary : summaries) ASSERT_FALSE(summary.has_value());
}

inline void expect_same_training(const Summary& actual, const Summary& expected) {
  EXPECT_EQ(actual.weights_hash, expected.weights_hash);
  EXPECT_EQ(actual.train_loss, expected.train_loss);
  EXPECT_EQ(actual.eval_loss, expected.eval_loss);
  EXPECT_EQ(actual.skipped_steps, expected.skipped_steps);
  EXPECT_EQ(actual.loss_scale, expected.loss_scale);
  EXPECT_EQ(actual.steps, expected.steps);
  ASSERT_EQ(actual.curve.size(), expected.curve.size());
  for (std::size_t i = 0; i < expected.curve.size(); ++i) {
    EXPECT_EQ(actual.curve[i].step, expected.curve[i].step);
    EXPECT_EQ(actual.curve[i].train_loss, expected.curve[i].train_loss);
    EXPECT_EQ(actual.curve[i].eval_loss, expected.curve[i].eval_loss);
    EXPECT_EQ(actual.curve[i].eval_metric, expected.curve[i].eval_metric);
    EXPECT_TRUE(i == 0 || actual.curve[i].seconds > actual.curve[i - 1].seconds);
  }
}

}  // namespace kolo::trainer
