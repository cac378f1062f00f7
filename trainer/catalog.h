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

/// Things of one kind that users choose by name, in the order in which they were added. `Entry` has
/// a string `name`.
///
/// Threads: one.
template <typename Entry>
class Registry {
 public:
  /// `option` is the option that chooses, for errors: "--model".
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

  /// Null if there is none.
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

/// The kind of config.data: the one that config names, or the first of the task's that it looks
/// like; null if there is none. Errors: UsageError for names that are not in the catalog.
const DatasetEntry* find_format(const Config& config, const Catalog& catalog);

/// Loads config.data, in the format that config names or that the files look like, as the data of
/// config.task.
/// Errors: UsageError for names that are not in the catalog; KoloError(kData) as the data sets,
///         also if no format fits the files, or training and held-out samples differ in format.
Task make_task(const Config& config, const Catalog& catalog);

/// What the model of a task is made for.
ModelSetting model_setting(const Config& config, const Task& task);

}  // namespace kolo::trainer
