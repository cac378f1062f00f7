#pragma once

#include "runtime/api/kolo.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/summary.h"
#include "trainer/optimizer/lr_schedule.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// Checks that options and data are equal on all ranks. Collective; call it before any other
/// collective of the job, because ranks that differ would take different numbers of steps, or
/// different samples. Errors: KoloError(kMismatch) on every rank, naming the ranks that differ.
void require_same_job(const Config& config, Runtime& runtime, const Task& task);

/// Trains `learner` on `task` on all ranks together and checks that they end with the same weights.
/// Collective.
///
/// Before:  config, data and learner are the same on all ranks (`require_same_job`).
/// Shape:   `progress` is null on ranks that print nothing.
/// Errors:  those of the runtime and the learner; KoloError(kMismatch) when final weights differ
///          between ranks; DivergedError when a loss is no longer finite.
Summary train(const Config& config, Runtime& runtime, const Task& task,
              const LrScheduleEntry& schedule, Learner& learner, Progress* progress);

}  // namespace kolo::trainer
