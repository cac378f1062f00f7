#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "runtime/api/kolo.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/loop/learner.h"
#include "trainer/loss/loss.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

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
