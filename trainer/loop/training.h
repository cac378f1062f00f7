#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/api/kolo.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/loop/learner.h"
#include "trainer/loss/loss.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/report/listeners.h"
#include "trainer/report/summary.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// Trains `learner` on `task` on all ranks together, and checks that all ranks end with equal
/// weights. Returns the summary, or empty if training was stopped before its end. Collective.
///
/// If the config names a run folder, `train` saves checkpoints there, and resumes from one as
/// config.resume says. `wants_stop` is called after each step; once it returns true on any rank,
/// all ranks save a checkpoint and stop. `listeners` is empty on ranks that report nothing.
///
/// Before:  config, data and learner are equal on all ranks (`require_same_job`).
/// Errors:  those of the runtime and the learner; KoloError(kMismatch) if final weights differ
///          between ranks; DivergedError if a loss is not finite; those of `resume`;
///          KoloError(kConfig) if the job cannot be resumed with the same bits; KoloError(kIo) if
///          training is stopped and the checkpoint cannot be written.
std::optional<Summary> train(
    const Config& config, Runtime& runtime, const Task& task, const LrScheduleEntry& schedule,
    Learner& learner, std::span<TrainingListener* const> listeners,
    const std::function<bool()>& wants_stop = [] { return false; });

// The next two functions make loaders of this rank's samples, with config.loader_threads threads.
// The task and its data outlive the loaders.

/// Makes a loader of the training samples, with a new order in each epoch.
DataLoader make_training_loader(const Config& config, const Runtime& runtime, const Task& task);

/// Makes a loader of `held_out` in the order of that data set, which outlives the loader.
DataLoader make_held_out_loader(const Config& config, const Runtime& runtime,
                                const Dataset& held_out);

/// Adds up `sums` over all ranks. Collective; `name` identifies the exchange.
LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums);

/// Computes the sums of loss and score over one epoch of `loader`, which the ranks share. Calls
/// `progress` after each step with the number of steps so far. Collective; all ranks get the same
/// result. Before: no sums of `learner` are pending (`Learner::take_sums`).
LossSums evaluate(Runtime& runtime, Learner& learner, DataLoader& loader,
                  const std::function<void(std::size_t)>& progress);

}  // namespace kolo::trainer
