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

/// Trains `learner` on `task` on all ranks together and checks that all end with equal weights.
/// Collective.
///
/// Before:  config, data and learner are equal on all ranks (`require_same_job`).
/// Shape:   `listeners` is empty on ranks that report nothing.
/// If the config names a run folder, `train` saves checkpoints there, at the latest at the end of
/// training, and resumes from one as config.resume says. `wants_stop` is called after each step;
/// once it is true on any rank, training ends on all ranks with a checkpoint and without a summary.
///
/// Errors:  those of the runtime and the learner; KoloError(kMismatch) if final weights differ
///          between ranks; DivergedError if a loss is not finite; those of `resume`;
///          KoloError(kConfig) if the job cannot be resumed with the same bits; KoloError(kIo) if
///          there is no checkpoint to resume from after `wants_stop`.
std::optional<Summary> train(
    const Config& config, Runtime& runtime, const Task& task, const LrScheduleEntry& schedule,
    Learner& learner, std::span<TrainingListener* const> listeners,
    const std::function<bool()>& wants_stop = [] { return false; });

// This rank's loaders of a task's samples, with threads as config.loader_threads says. The task and
// its data outlive them.

/// Serves the samples in a new order in each epoch.
DataLoader make_training_loader(const Config& config, const Runtime& runtime, const Task& task);

/// Serves the samples in the order of `held_out`, which outlives the loader.
DataLoader make_held_out_loader(const Config& config, const Runtime& runtime,
                                const Dataset& held_out);

/// Sums `sums` over all ranks. Collective; `name` identifies the exchange.
LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums);

/// Loss and score over one epoch of `loader`, whose samples the ranks share. Calls `progress` after
/// each step with the number of steps so far. Collective; all ranks get the same result. Before:
/// the sums of `learner` were taken.
LossSums evaluate(Runtime& runtime, Learner& learner, DataLoader& loader,
                  const std::function<void(std::size_t)>& progress);

}  // namespace kolo::trainer
