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

/// A program with its arguments, and the file for what it prints.
struct ChildProcess {
  std::vector<std::string> words;
  std::filesystem::path log;
};

/// Runs all of them, `at_once` at a time, in order, and returns their exit statuses; 128 + N for
/// one that signal N ended. `ended` is called as soon as each ends.
///
/// Threads: one, in a program without other children.
/// Errors:  KoloError(kIo) naming a program that cannot be started or a log that cannot be written;
///          the processes that are under way are waited for.
std::vector<int> run_all(const std::vector<ChildProcess>& processes, std::size_t at_once,
                         const std::function<void(std::size_t index, int status)>& ended);

/// An option with the values to try.
struct Dimension {
  std::string option;  ///< A long name: "lr".
  std::vector<std::string> values;
};

/// "lr=1e-3,3e-3". Commas within parentheses belong to a value. Errors: UsageError quoting `text`.
Dimension parse_dimension(std::string_view text);

/// A value for each dimension.
using Combination = std::vector<Setting>;

/// All combinations, the last dimension changing first. Errors: UsageError for an option that comes
/// twice.
std::vector<Combination> all_combinations(const std::vector<Dimension>& dimensions);

/// "lr=1e-3,batch=8", fit for a folder: other characters than letters, digits and . , = + - ( ) _
/// become '_'.
std::string folder_name(const Combination& combination);

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

/// `kolo-train sweep --vary OPTION=VALUE,... --folder DIR OPTIONS`: trains with every combination,
/// prints a table, and writes it to DIR/sweep.json. Returns the exit status, which is that of a run
/// if all have failed. Errors: UsageError for malformed options; those of `run_sweep`.
int run_sweep_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
