#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

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

/// The values of all ranks, by rank. Collective; `name` identifies the exchange.
std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value);

/// A sentence that says which of `values`, by rank, differ from rank 0. Empty if all are equal.
std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values);

/// Checks that all ranks give the same value. Collective.
/// Errors: KoloError(kMismatch) on every rank, naming `what` and the ranks that differ from rank 0.
void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value);

/// Checks that all ranks have the same settings, which have the same names everywhere. Collective.
/// Errors: KoloError(kMismatch) on every rank, with the name of the first one that differs and, as
/// far as 64 bytes tell, its values.
void require_equal(Runtime& runtime, const std::vector<Setting>& settings);

}  // namespace kolo::trainer
