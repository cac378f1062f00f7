#pragma once

#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// The kind of config.data: the one that config names, or the first of the task's that it looks
/// like; null if there is none. Errors: UsageError for names that are not in the catalog.
const DatasetEntry* find_format(const Config& config, const Catalog& catalog);

/// The kind of config.data: the one that config names, or the first of the task's that it looks
/// like; null if there is none. Errors: UsageError for names that are not in the catalog.
const DatasetEntry* find_format(const Config& config, const Catalog& catalog);

/// Loads config.data, in the format that config names or that the files look like, as the data of
/// config.task.
/// Errors: UsageError for names that are not in the catalog; KoloError(kData) as the data sets,
/// also
///         if no format fits the files, or training and held-out samples differ in format.
Task make_task(const Config& config, const Catalog& catalog);

/// What the model of a task is made for.
ModelSetting model_setting(const Config& config, const Task& task);

}  // namespace kolo::trainer
