#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/job_identity.h"

namespace kolo::trainer {

/// A program with its arguments, and the file for its output.
struct ChildProcess {
  std::vector<std::string> words;
  std::filesystem::path log;
};

/// Runs all processes in order, `at_once` at a time, and returns their exit statuses; a process
/// ended by signal N has status 128 + N. `ended` is called as soon as a process ends.
///
/// Threads: one, in a program without other child processes.
/// Errors:  KoloError(kIo) naming a program that cannot be started or a log that cannot be written,
///          after the running processes have ended.
std::vector<int> run_all(const std::vector<ChildProcess>& processes, std::size_t at_once,
                         const std::function<void(std::size_t index, int status)>& ended);

/// An option with the values to try.
struct Dimension {
  std::string option;  ///< A long option name: "lr".
  std::vector<std::string> values;
};

/// Parses "lr=1e-3,3e-3". Commas within parentheses belong to a value. Errors: UsageError quoting
/// `text`.
Dimension parse_dimension(std::string_view text);

/// A value for each dimension.
using Combination = std::vector<Setting>;

/// All combinations; the last dimension varies fastest. Errors: UsageError for an option that
/// occurs twice.
std::vector<Combination> all_combinations(const std::vector<Dimension>& dimensions);

/// "lr=1e-3,batch=8" as a folder name: characters other than letters, digits and . , = + - ( ) _
/// become '_'.
std::string folder_name(const Combination& combination);

/// Trains with every combination of some options and compares the results.
struct SweepOptions {
  std::vector<std::string> command;  ///< A launcher with its options, if any, then kolo-train.
  std::vector<std::string> options;  ///< Training options that all runs share.
  std::vector<Dimension> dimensions;
  std::filesystem::path folder;  ///< Parent of the runs' folders; see `folder_name`.
  std::size_t at_once = 1;       ///< Concurrent runs.
  /// Successive halving: all runs train for the first 1 / 2^(rounds - 1) of `steps`, then the
  /// better half trains for as many steps again, and so on, until the best run has taken all steps.
  /// 1: every run takes all steps.
  std::size_t rounds = 1;
  std::size_t steps = 0;  ///< With more than one round: steps of a whole run.
};

/// A run and its progress.
struct SweepResult {
  Combination combination;
  int status = 0;         ///< Exit status of its last process.
  std::size_t steps = 0;  ///< At the last evaluation.
  std::optional<double> train_loss = std::nullopt;
  std::optional<double> eval_loss = std::nullopt;
  std::string metric = "";  ///< Name of the metric.
  std::optional<double> eval_metric = std::nullopt;
};

/// Runs all combinations, reports the end of each to `out`, and returns the results, best first: by
/// steps taken, then by held-out loss, with failed runs last. A run that already exists resumes
/// from its last checkpoint, so an interrupted sweep can be repeated.
///
/// Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
///         Optimization", 2016 (successive halving).
/// Errors: UsageError for options that exclude each other; KoloError(kIo).
std::vector<SweepResult> run_sweep(const SweepOptions& options, std::FILE* out);

/// An aligned table for people.
std::string to_table(const std::vector<SweepResult>& results);

/// A JSON array.
std::string to_json(const std::vector<SweepResult>& results);

/// `kolo-train sweep --vary OPTION=VALUE,... --folder DIR OPTIONS`: trains with every combination,
/// prints a table, and writes the results to DIR/sweep.json. Returns the exit status, which is a
/// run's if all runs failed. Errors: UsageError for malformed options; those of `run_sweep`.
int run_sweep_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
