#pragma once

#include "trainer/data/dataset_entry.h"
#include "trainer/models/model.h"
#include "trainer/optimizer/lr_schedule.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/registry.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// Everything that a training program can choose by name. A program of its own adds what it brings
/// and passes the catalog to `run_trainer`.
struct Catalog {
  Registry<TaskEntry> tasks{"--task"};
  Registry<ModelEntry> models{"--model"};
  Registry<DatasetEntry> datasets{"--format"};
  Registry<OptimizerEntry> optimizers{"--optimizer"};
  Registry<LrScheduleEntry> lr_schedules{"--lr-schedule"};
};

/// What kolo-train offers.
Catalog built_in_catalog();

}  // namespace kolo::trainer
