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

/// Trains `learner` on `task` on all ranks together and checks that they end with the same weights.
/// Collective.
///
/// Before:  config, data and learner are the same on all ranks (`require_same_job`).
/// Shape:   `listeners` is empty on ranks that report nothing.
/// With a folder for the run it saves checkpoints there, at the end of training at the latest, and
/// goes on from one as config.resume says. `wants_stop`, called after each step, ends training on
/// all ranks once it is true on one of them: a checkpoint is saved, and there is no summary.
///
/// Errors:  those of the runtime and the learner; KoloError(kMismatch) when final weights differ
///          between ranks; DivergedError when a loss is no longer finite; those of `resume`;
///          KoloError(kConfig) if the job cannot be resumed with the same bits; KoloError(kIo) if
///          there is no checkpoint to resume from after `wants_stop`.
std::optional<Summary> train(
    const Config& config, Runtime& runtime, const Task& task, const LrScheduleEntry& schedule,
    Learner& learner, std::span<TrainingListener* const> listeners,
    const std::function<bool()>& wants_stop = [] { return false; });

// This rank's loaders of a task's samples, with threads as config.loader_threads says. Each
// outlives neither the task nor its data.

/// In an order of its own for each epoch.
DataLoader make_training_loader(const Config& config, const Runtime& runtime, const Task& task);

/// In the order of `held_out`, which outlives it.
DataLoader make_held_out_loader(const Config& config, const Runtime& runtime,
                                const Dataset& held_out);

/// Adds up `sums` over all ranks. Collective; `name` identifies the exchange.
LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums);

/// Loss and score over one epoch of `loader`, whose samples the ranks share. Calls `progress` with
/// the number of steps after each. Collective; the result is the same on all ranks. Before: the
/// sums of `learner` were taken.
LossSums evaluate(Runtime& runtime, Learner& learner, DataLoader& loader,
                  const std::function<void(std::size_t)>& progress);

}  // namespace kolo::trainer
