#include "trainer/tasks/make_task.h"

#include <string>
#include <utility>

#include "trainer/config_error.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

const DatasetEntry& required_format(const Config& config, const Catalog& catalog) {
  if (const DatasetEntry* format = find_format(config, catalog)) return *format;
  std::error_code ignored;
  if (!std::filesystem::exists(config.data, ignored)) {
    throw_data_error(config.data, "no such file or directory");
  }
  std::string known;
  for (const DatasetEntry& entry : catalog.datasets.entries()) {
    if (!catalog.tasks.at(config.task).reads_data_of(entry.task)) continue;
    known += (known.empty() ? "" : "; or ") + entry.help + " (--format " + entry.name + ")";
  }
  throw_data_error(config.data,
                   "holds no data for --task " + config.task + ", which takes " + known);
}

}  // namespace

const DatasetEntry* find_format(const Config& config, const Catalog& catalog) {
  if (config.format != "auto") return &catalog.datasets.at(config.format);
  std::error_code ignored;
  if (!std::filesystem::exists(config.data, ignored)) return nullptr;
  const TaskEntry& task = catalog.tasks.at(config.task);
  for (const DatasetEntry& entry : catalog.datasets.entries()) {
    if (task.reads_data_of(entry.task) && entry.accepts(config.data)) return &entry;
  }
  return nullptr;
}

Task make_task(const Config& config, const Catalog& catalog) {
  const TaskEntry& task = catalog.tasks.at(config.task);
  DataSplit data = required_format(config, catalog).load(config);
  if (!is_compatible(data.train->format(), data.held_out->format())) {
    throw_data_error(config.data, "training and held-out samples differ in shape or range");
  }
  if (const Augmentation augmentation = parse_augmentation(config.augment);
      !augmentation.is_empty()) {
    if (!takes_augmentation(data.train->format())) {
      throw_config_error("--augment " + config.augment + ": changes images, and " +
                         config.data.string() + " has none; leave it out");
    }
    data.train = augmented(std::move(data.train), augmentation, config.seed);
  }
  return task.make(config, std::move(data));
}

ModelSetting model_setting(const Config& config, const Task& task) {
  return {.config = config,
          .format = task.format(),
          .outputs = task.outputs,
          .batch = config.batch,
          .tokenizer = task.data.tokenizer.get()};
}

}  // namespace kolo::trainer
