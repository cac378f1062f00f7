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

/// A program to run: its arguments, beginning with its name, and the file for its output.
struct ChildProcess {
  std::vector<std::string> words;
  std::filesystem::path log;
};

/// Runs all processes in order, `at_once` at a time, and returns their exit statuses. A process
/// that is ended by signal N has status 128 + N. Calls `ended` when a process ends.
///
/// Threads: one, in a program without other child processes.
/// Errors:  KoloError(kIo) naming a program that cannot be started or a log that cannot be written;
///          it is thrown after the running processes have ended.
std::vector<int> run_all(const std::vector<ChildProcess>& processes, std::size_t at_once,
                         const std::function<void(std::size_t index, int status)>& ended);

/// An option, and the values that a sweep tries.
struct Dimension {
  std::string option;  ///< Long name of the option without dashes, such as "lr".
  std::vector<std::string> values;
};

/// Parses a text such as "lr=1e-3,3e-3". Commas in parentheses belong to values. Errors: UsageError
/// quoting `text`.
Dimension parse_dimension(std::string_view text);

/// One value of each dimension.
using Combination = std::vector<Setting>;

/// All combinations of values; the last dimension varies fastest. Errors: UsageError for an option
/// that occurs twice.
std::vector<Combination> all_combinations(const std::vector<Dimension>& dimensions);

/// The name of a run's folder, such as "lr=1e-3,batch=8". Characters other than letters, digits and
/// .,=+-() become '_'.
std::string folder_name(const Combination& combination);

/// The runs of a sweep: training with every combination of some options' values.
struct SweepOptions {
  std::vector<std::string> command;  ///< Launcher with its options, if any, then the path of
                                     ///< kolo-train.
  std::vector<std::string> options;  ///< Training options that all runs share.
  std::vector<Dimension> dimensions;
  std::filesystem::path folder;  ///< Folder that holds a folder for each run; see `folder_name`.
  std::size_t at_once = 1;       ///< Largest number of concurrent runs, at least 1.
  /// Rounds of successive halving. In the first round, all runs train for steps / 2^(rounds - 1)
  /// steps. In each later round, the better half of the runs continues to twice the steps. With 1
  /// round, every run takes all steps.
  std::size_t rounds = 1;
  std::size_t steps = 0;  ///< Steps of a run through all rounds; unused if there is one round.
};

/// A run of a sweep and its latest numbers.
struct SweepResult {
  Combination combination;
  int status = 0;          ///< Exit status of the run's last process.
  std::size_t rounds = 0;  ///< Rounds that it has taken part in.
  std::size_t steps = 0;   ///< Steps taken up to the last evaluation.
  std::optional<double> train_loss = std::nullopt;
  std::optional<double> eval_loss = std::nullopt;
  std::string metric = "";  ///< Name of the task's metric.
  std::optional<double> eval_metric = std::nullopt;
};

/// Runs all combinations, prints a line to `out` when a run ends, and returns the results, best
/// first: those of later rounds, and of one round those of lower held-out loss, whatever the number
/// of their steps. Failed runs are last. A run that already exists resumes from its last
/// checkpoint, so an interrupted sweep can be repeated.
///
/// Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
///         Optimization", 2016 (successive halving).
/// Errors: UsageError for an option that occurs twice; KoloError(kIo).
std::vector<SweepResult> run_sweep(const SweepOptions& options, std::FILE* out);

/// The results as a table with aligned columns.
std::string to_table(const std::vector<SweepResult>& results);

/// The results as a JSON array.
std::string to_json(const std::vector<SweepResult>& results);

/// Runs `kolo-train sweep --vary OPTION=VALUE,... --folder DIR OPTIONS`: trains with every
/// combination, prints a table, and writes the results to DIR/sweep.json. Returns the exit status
/// of the best run. Errors: UsageError for malformed options; those of `run_sweep`.
int run_sweep_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
