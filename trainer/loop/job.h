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

/// The settings that a job must share with a checkpoint to resume from it. The number of ranks may
/// change if ranks times batch stays equal, since a step consists of the samples of all ranks. With
/// a constant learning-rate schedule, the number of steps may change, too.
JobIdentity job_identity(const Config& config, const Runtime& runtime, const Task& task);

/// Whether the job saves checkpoints or resumes from one.
inline bool has_checkpoints(const Config& config) {
  return !config.run.empty() || config.resume != "no";
}

/// Checks that options and data are equal on all ranks. Collective; call it before any other
/// collective of the job, because ranks that differ would take different numbers of steps or
/// different samples. Errors: KoloError(kMismatch) on every rank, naming the ranks that differ.
void require_same_job(const Config& config, Runtime& runtime, const Task& task);

/// The learning-rate schedule of the job, with the decay `fall` after the warm-up.
LrSchedule make_schedule(const Config& config, const Runtime& runtime, const Task& task,
                         LrFall fall);

/// The weight of each row's loss with which averaged gradients are means over all rows, even if the
/// ranks have unequal parts in the last step. Averages are over ranks, or over samples if ranks may
/// join.
float row_weight(const Config& config, const Runtime& runtime, const Task& task,
                 const Batch& batch);

/// A summary of the job's settings, the choices in force, the end of `curve` and the hash of the
/// final weights. Collective. Errors: KoloError(kMismatch) if weights differ between ranks.
Summary describe_job(const Config& config, Runtime& runtime, const Task& task, Learner& learner,
                     std::vector<CurvePoint> curve);

/// Errors: KoloError(kConfig) for jobs whose state cannot be saved, or that would not resume with
///         the same bits.
void require_resumable(const Config& config, const Runtime& runtime, Learner& learner);

/// Gathers `value` from all ranks, by rank. Collective; `name` identifies the exchange.
std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value);

/// A sentence that says which of `values`, by rank, differ from rank 0's. Empty if all are equal.
std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values);

/// Checks that `value` is equal on all ranks. Collective.
/// Errors: KoloError(kMismatch) on every rank, naming `what` and the ranks that differ from rank 0.
void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value);

/// Checks that all ranks have equal settings; the names of the settings are equal everywhere.
/// Collective.
/// Errors: KoloError(kMismatch) on every rank, with the name of the first setting that differs and
///         the first 64 bytes of its values on rank 0 and on the first other rank.
void require_equal(Runtime& runtime, const std::vector<Setting>& settings);

}  // namespace kolo::trainer
