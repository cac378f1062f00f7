#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "trainer/data/dataset.h"
#include "trainer/errors.h"
#include "trainer/models/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// Named entries that users choose from, in the order in which they were added. `Entry` has a
/// string `name`.
///
/// Threads: one.
template <typename Entry>
class Registry {
 public:
  /// `option` is the command-line option named in errors: "--model".
  explicit Registry(std::string option) : option_(std::move(option)) {}

  /// Errors: UsageError if the name is taken.
  void add(Entry entry) {
    check(find(entry.name) == nullptr, option_ + ": '" + entry.name + "' is there twice");
    entries_.push_back(std::move(entry));
  }

  /// Errors: UsageError naming the choices.
  const Entry& at(std::string_view name) const {
    if (const Entry* entry = find(name)) return *entry;
    throw_unknown_choice(option_, name, names());
  }

  /// Returns null if there is no entry of this name.
  const Entry* find(std::string_view name) const {
    for (const Entry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  const std::vector<Entry>& entries() const { return entries_; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    return names;
  }

 private:
  std::string option_;
  std::vector<Entry> entries_;
};

/// Everything that a training program can choose by name. A custom program adds its own entries and
/// passes the catalog to `run_trainer`.
struct Catalog {
  Registry<TaskEntry> tasks{"--task"};
  Registry<ModelEntry> models{"--model"};
  Registry<DatasetEntry> datasets{"--format"};
  Registry<OptimizerEntry> optimizers{"--optimizer"};
  Registry<LrScheduleEntry> lr_schedules{"--lr-schedule"};
};

/// The catalog of kolo-train.
Catalog built_in_catalog();

/// The format of config.data: the one that config names, else the first format of the task that
/// matches the files, else null. Errors: UsageError for names that are not in the catalog.
const DatasetEntry* find_format(const Config& config, const Catalog& catalog);

/// Loads config.data as the data of config.task, in the format that config names, or else in the
/// format that matches the files.
/// Errors: UsageError for names that are not in the catalog; KoloError(kData) as the data sets,
///         also if no format fits the files, or training and held-out samples differ in format.
Task make_task(const Config& config, const Catalog& catalog);

/// The shapes and sizes that the task asks of its model.
ModelSetting model_setting(const Config& config, const Task& task);

}  // namespace kolo::trainer
