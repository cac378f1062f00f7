#pragma once

#include <memory>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/config.h"
#include "trainer/loop/parameter_updater.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_set.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// The updater that `config` asks for, with an optimizer made by `entry`. Collective.
/// Errors: KoloError(kConfig) naming options that do not go together; those of the runtime.
std::unique_ptr<ParameterUpdater> make_updater(const Config& config, const OptimizerEntry& entry,
                                               Runtime& runtime, const Task& task,
                                               ParameterSet& parameters, const Clock& clock);

}  // namespace kolo::trainer
