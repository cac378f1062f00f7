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

/// A list of entries from which users choose one by name, in the order in which they were added.
/// `Entry` is a struct with a std::string member called `name`.
///
/// Threads: one.
template <typename Entry>
class Registry {
 public:
  /// `option` is the command-line option that error messages name, such as "--model".
  explicit Registry(std::string option) : option_(std::move(option)) {}

  /// Appends `entry`. Errors: UsageError if the list already has an entry of this name.
  void add(Entry entry) {
    check(find(entry.name) == nullptr, option_ + ": '" + entry.name + "' is there twice");
    entries_.push_back(std::move(entry));
  }

  /// Returns the entry of this name. Errors: UsageError naming the choices if there is none.
  const Entry& at(std::string_view name) const {
    if (const Entry* entry = find(name)) return *entry;
    throw_unknown_choice(option_, name, names());
  }

  /// Returns the entry of this name, or null if there is none.
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

/// The tasks, models, data formats, optimizers and learning-rate schedules that users can choose by
/// name. A custom program adds entries and passes the catalog to `run_trainer`.
struct Catalog {
  Registry<TaskEntry> tasks{"--task"};
  Registry<ModelEntry> models{"--model"};
  Registry<DatasetEntry> datasets{"--format"};
  Registry<OptimizerEntry> optimizers{"--optimizer"};
  Registry<LrScheduleEntry> lr_schedules{"--lr-schedule"};
};

/// The catalog of kolo-train.
Catalog built_in_catalog();

/// Finds the format of the files at `config.data`: the entry named by `config.format` or, for
/// "auto", the first entry that belongs to the task and accepts the files. Returns null if no entry
/// does. Errors: UsageError for names that are not in the catalog.
const DatasetEntry* find_format(const Config& config, const Catalog& catalog);

/// Loads `config.data` for the task `config.task`, in the format that `find_format` finds.
/// Errors: UsageError for names that are not in the catalog; KoloError(kData) if no format accepts
///         the files, if they are malformed, or if training and held-out samples differ in shape or
///         range; KoloError(kConfig) for `config.augment` without images.
Task make_task(const Config& config, const Catalog& catalog);

/// The sample format, output size and batch size with which the task's model is built.
ModelSetting model_setting(const Config& config, const Task& task);

}  // namespace kolo::trainer
