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

/// The settings that a job must share with a checkpoint from which it resumes. The number of ranks
/// may change if ranks times batch stays equal, because a step consists of the samples of all
/// ranks. With a constant learning-rate schedule, the number of steps may change, too.
JobIdentity job_identity(const Config& config, const Runtime& runtime, const Task& task);

/// Whether the job saves checkpoints or resumes from a checkpoint.
inline bool has_checkpoints(const Config& config) {
  return !config.run.empty() || config.resume != "no";
}

/// Checks that options and data are equal on all ranks. Collective; call it before any other
/// collective call of the job, because ranks that differ would take different numbers of steps or
/// different samples. Errors: KoloError(kMismatch) on every rank, naming the ranks that differ.
void require_same_job(const Config& config, Runtime& runtime, const Task& task);

/// The learning-rate schedule of the job; after the warm-up, the rate falls as `fall` says.
LrSchedule make_schedule(const Config& config, const Runtime& runtime, const Task& task,
                         LrFall fall);

/// The weight of each row's loss in this rank's gradients. With this weight, averaged gradients are
/// means over the rows of all ranks, even in a last step with unequal numbers of samples. If ranks
/// may join, averages are weighted by samples, and the weight counts this rank's rows only.
float row_weight(const Config& config, const Runtime& runtime, const Task& task,
                 const Batch& batch);

/// Makes a summary with the job's settings, the runtime's choices, the end of `curve` and the hash
/// of the final weights. Collective. Errors: KoloError(kMismatch) if weights differ between ranks.
Summary describe_job(const Config& config, Runtime& runtime, const Task& task, Learner& learner,
                     std::vector<CurvePoint> curve);

/// Checks that a job with checkpoints can resume with the same bits. Errors: KoloError(kConfig) if
/// its compression depends on measured times.
void require_resumable(const Config& config, const Runtime& runtime);

/// Returns the `value` of each rank, in rank order. Collective; `name` identifies the exchange.
std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value);

/// A sentence that names the ranks whose `values` differ from rank 0's; empty if none does.
std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values);

/// Checks that `value` is equal on all ranks. Collective.
/// Errors: KoloError(kMismatch) on every rank, naming `what` and the ranks that differ from rank 0.
void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value);

/// Checks that all ranks have equal `settings`. Before: all ranks have the same names. Collective.
/// Errors: KoloError(kMismatch) on every rank, with the name of the first setting that differs, and
///         the first 64 bytes of its values on rank 0 and on the first rank that differs.
void require_equal(Runtime& runtime, const std::vector<Setting>& settings);

}  // namespace kolo::trainer
