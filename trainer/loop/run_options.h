#pragma once

#include <cstddef>
#include <functional>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/checkpointed_run.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// What a checkpoint has to have in common with the job that goes on from it. The samples of a step
/// are those of all ranks, so ranks may change if their product with the batch does not. A schedule
/// that does not fall lets the number of steps change, too.
JobIdentity job_identity(const Config& config, const Runtime& runtime, const Task& task);

/// Whether the job saves checkpoints or goes on from one.
inline bool has_checkpoints(const Config& config) {
  return !config.run.empty() || config.resume != "no";
}

/// Errors: KoloError(kConfig) for jobs whose state cannot be saved, or which would not go on with
/// the same bits.
void require_resumable(const Config& config, const Runtime& runtime, Learner& learner);

}  // namespace kolo::trainer
