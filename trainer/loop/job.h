#pragma once

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/job_identity.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/report/summary.h"
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

/// Checks that options and data are equal on all ranks. Collective; call it before any other
/// collective of the job, because ranks that differ would take different numbers of steps, or
/// different samples. Errors: KoloError(kMismatch) on every rank, naming the ranks that differ.
void require_same_job(const Config& config, Runtime& runtime, const Task& task);

/// The learning rates of the job, whose highest one falls as `fall` says.
LrSchedule make_schedule(const Config& config, const Runtime& runtime, const Task& task,
                         LrFall fall);

/// With which the averages of gradients are those over all rows, even when the last step deals
/// unequal parts: averages are over ranks, or where ranks may join over samples.
float row_weight(const Config& config, const Runtime& runtime, const Task& task,
                 const Batch& batch);

/// A summary of the job's settings, the choices in force, the end of `curve` and the hash of the
/// weights, which are final. Collective. Errors: KoloError(kMismatch) if weights differ.
Summary describe_job(const Config& config, Runtime& runtime, const Task& task, Learner& learner,
                     std::vector<CurvePoint> curve);

/// Errors: KoloError(kConfig) for jobs whose state cannot be saved, or which would not go on with
/// the same bits.
void require_resumable(const Config& config, const Runtime& runtime, Learner& learner);

}  // namespace kolo::trainer
