#include "trainer/loop/trainer_program.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "comm/base/output_file.h"
#include "runtime/api/kolo.h"
#include "runtime/tools/command_line.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/stop_signals.h"
#include "trainer/compute/threads.h"
#include "trainer/divergence.h"
#include "trainer/loop/command_line.h"
#include "trainer/loop/export_command.h"
#include "trainer/loop/learner_factory.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/summary.h"
#include "trainer/loop/training.h"
#include "trainer/models/generate.h"
#include "trainer/tasks/make_task.h"

namespace kolo::trainer {
namespace {

std::string describe(const Config& config, const Runtime& runtime, const Task& task,
                     const Learner& learner) {
  std::string text =
      fmt::format("{}: {} parameters, {} training and {} held-out samples, {} ranks x batch {}",
                  config.model, learner.parameter_count(), task.data.train->size(),
                  task.data.held_out->size(), runtime.world_size(), config.batch);
  const PlanSummary plan = learner.plan();
  if (!plan.reason.empty()) {
    text += fmt::format("\ngradients: {}: {}", plan.algorithm, plan.reason);
  }
  if (!plan.compression.empty()) text += "\ncompression: " + plan.compression;
  for (const CompressionDecision& decision : plan.compression_decisions) {
    text += "\ncompression: " + to_string(decision);
  }
  return text;
}

void print_generated_text(const Config& config, const Task& task, const ModelEntry& model,
                          Learner& learner, Progress& progress) {
  if (!model.generate || config.sample_bytes == 0) return;
  const std::string text = model.generate(model_setting(config, task), learner.parameters());
  progress.note("generated text:\n" + printable(text));
}

void run_job(const Catalog& catalog, const Config& config) {
  std::optional<StopSignals> signals;  // Before anything starts a thread.
  if (!config.run.empty()) signals.emplace();
  set_compute_threads(config.threads);
  Runtime runtime = Runtime::from_environment(config.runtime);
  expect_output(runtime, config.json);
  expect_output(runtime, config.export_file);
  const Task task = make_task(config, catalog);
  require_same_job(config, runtime, task);
  const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);

  std::optional<Progress> progress;
  if (runtime.rank() == 0) {
    progress.emplace(stdout, progress_style(config.progress, stdout), task.unit);
    progress->note(describe(config, runtime, task, *learner));
  }
  const std::optional<Summary> summary =
      train(config, runtime, task, catalog.lr_schedules.at(config.lr_schedule), *learner,
            progress ? &*progress : nullptr, [&signals] { return signals && signals->has_come(); });
  if (progress && summary) {
    print_generated_text(config, task, catalog.models.at(config.model), *learner, *progress);
    if (!config.json.empty()) write_file(config.json, to_json(*summary));
    if (!config.export_file.empty()) export_weights(learner->parameters(), config.export_file);
  }
  runtime.close();
  if (progress && summary) progress->note(to_line(*summary));
}

}  // namespace

int run_trainer(const Catalog& catalog, int argc, const char* const* argv) {
  return run_program([&] {
    if (is_export(argc, argv)) return run_export(argc, argv);
    const CommandLine command_line = parse_command_line(argc, argv, catalog);
    if (command_line.text) {
      fmt::print("{}", *command_line.text);
      return 0;
    }
    try {
      run_job(catalog, command_line.config);
    } catch (const DivergedError& diverged) {
      Error error = diverged.error();
      log::report(error);
      return DivergedError::kExitStatus;
    }
    return 0;
  });
}

}  // namespace kolo::trainer
