#pragma once

#include <memory>

#include "trainer/loop/config.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/task.h"

namespace kolo::trainer {

/// The learner of `task` on the device that the runtime's options name. Collective; `config` and
/// `task` may end before it, `runtime` outlives it.
///
/// Before:  config and task are the same on all ranks (`require_same_job`).
/// Errors:  KoloError(kConfig) for a device that this build cannot train on, or for what the device
///          does not offer; UsageError when the model cannot take the images; those of the runtime.
std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task);

}  // namespace kolo::trainer
