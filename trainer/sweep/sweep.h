#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/sweep/grid.h"

namespace kolo::trainer {

/// Trains with every combination of some options and compares the results.
struct SweepOptions {
  std::vector<std::string> command;  ///< A launcher with its options, if any, then kolo-train.
  std::vector<std::string> options;  ///< Those of training that all runs share.
  std::vector<Dimension> dimensions;
  std::filesystem::path folder;  ///< Of all runs: each has one below it, by `folder_name`.
  std::size_t at_once = 1;       ///< Runs side by side.
  /// Successive halving: all runs take the first 1 / 2^(rounds - 1) of `steps`, then the better
  /// half of them as many again, and so on; the best takes all steps. 1: all take all steps.
  std::size_t rounds = 1;
  std::size_t steps = 0;  ///< With more than one round: of a whole run.
};

/// A run and how far it came.
struct SweepResult {
  Combination combination;
  int status = 0;         ///< Of its last process.
  std::size_t steps = 0;  ///< At its last evaluation.
  std::optional<double> train_loss = std::nullopt;
  std::optional<double> eval_loss = std::nullopt;
  std::string metric = "";  ///< Its name.
  std::optional<double> eval_metric = std::nullopt;
};

/// Runs them all, tells `out` about each end, and returns the best first: those that took more
/// steps come first, then those of lower held-out loss; failed ones last. A run that was there goes
/// on from its last checkpoint, so a sweep that was interrupted can be repeated.
///
/// Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
///         Optimization", 2016 (successive halving).
/// Errors: UsageError for options that exclude each other; KoloError(kIo).
std::vector<SweepResult> run_sweep(const SweepOptions& options, std::FILE* out);

/// An aligned table for people.
std::string to_table(const std::vector<SweepResult>& results);

/// One JSON array.
std::string to_json(const std::vector<SweepResult>& results);

}  // namespace kolo::trainer
