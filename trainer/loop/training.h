#pragma once

#include "runtime/kolo.h"
#include "trainer/loop/config.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/summary.h"
#include "trainer/loop/task.h"

namespace kolo::trainer {

/// Trains `task` on all ranks together and checks that they end with the same weights. Collective.
///
/// Before:  config, data and model are the same on all ranks, which is checked.
/// Shape:   `progress` is null on ranks that print nothing.
/// Errors:  those of the runtime; KoloError(kMismatch) when jobs or final weights differ between
///          ranks; KoloError(kInternal) when the loss is no longer a number.
Summary train(const Config& config, Runtime& runtime, Task& task, Progress* progress);

}  // namespace kolo::trainer
