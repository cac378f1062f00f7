#pragma once

#include "runtime/api/kolo.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

// This rank's loaders of a task's samples, with threads as config.loader_threads says. Each
// outlives neither the task nor its data.

/// In an order of its own for each epoch.
DataLoader make_training_loader(const Config& config, const Runtime& runtime, const Task& task);

/// In the order of `held_out`, which outlives it.
DataLoader make_held_out_loader(const Config& config, const Runtime& runtime,
                                const Dataset& held_out);

}  // namespace kolo::trainer
