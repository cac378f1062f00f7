#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// The learner of `task` on the device that the runtime's options name. Collective; `config` and
/// `task` may end before it, `runtime` outlives it.
///
/// Before:  config and task are the same on all ranks (`require_same_job`).
/// Errors:  KoloError(kConfig) for a device that this build cannot train on, or for what the device
///          does not offer; UsageError when the model cannot take the samples; those of the
///          runtime.
std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task,
                                      const Catalog& catalog);

/// Errors: KoloError(kConfig) naming the first option in use that no model on a GPU offers.
void require_offered_on_gpus(const Config& config);

/// Names of the models that this build trains on a GPU as well.
std::vector<std::string> device_models();

}  // namespace kolo::trainer
