#include "trainer/loop/trainer_program.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/output_file.h"
#include "runtime/api/kolo.h"
#include "runtime/tools/command_line.h"
#include "trainer/catalog.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/errors.h"
#include "trainer/loop/command_line.h"
#include "trainer/loop/job.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/training.h"
#include "trainer/mesh/mesh.h"
#include "trainer/models/gpt_reader.h"
#include "trainer/parameter_set.h"
#include "trainer/report/listeners.h"
#include "trainer/report/summary.h"
#include "trainer/sweep/sweep.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/vocabulary.h"
#include "trainer/tokens/tokenize.h"
#include "trainer/tokens/tokens.h"

namespace kolo::trainer {
namespace {

std::string describe(const Config& config, const Runtime& runtime, const Task& task,
                     Learner& learner) {
  std::string text =
      fmt::format("{}: {} parameters, {} training and {} held-out samples, {} ranks x batch {}",
                  config.model, learner.parameter_count(), task.data.train->size(),
                  task.data.held_out->size(), data_ranks(config.mesh, runtime), config.batch);
  if (const Mesh* const mesh = learner.mesh()) {
    const MeshShape& shape = mesh->shape();
    text +=
        fmt::format("\nmesh: data {} x tensor {} x pipeline {}; {} parameters on this rank",
                    shape.data, shape.tensor, shape.pipeline, learner.parameters().element_count());
  }
  if (!learner.origin().empty()) text += "\n" + learner.origin();
  const PlanSummary plan = learner.plan();
  if (!plan.reason.empty()) text += "\ngradients: " + plan.reason;
  if (!plan.compression.empty()) text += "\ncompression: " + plan.compression;
  if (!plan.compression_decisions.empty()) text += "\n" + describe_decisions(plan);
  return text;
}

/// Finds the vocabularies of a job for texts; empty if they are built from the data. Vocabularies
/// stored with the weights take precedence, because options may name a folder that no longer
/// exists.
TextFiles find_vocabularies(const Config& config) {
  TextFiles files;
  if (!config.weights.empty()) files = vocabularies_of(config.weights);
  if (files.empty() && !config.tokenizer.empty()) {
    files = vocabularies_at(config.tokenizer);
    if (files.empty()) {
      throw_data_error(config.tokenizer,
                       "--tokenizer: there is no vocab.json with merges.txt, and no words.json");
    }
  }
  if (config.weights_part == "shared" && config.text_marks && !has_vocabulary(files)) {
    throw_data_error(config.weights,
                     "it came with no vocabulary, and its table has a row for each entry of one: "
                     "name that of its training by --tokenizer");
  }
  return files;
}

/// Checks that `kolo-train evaluate` or `kolo-train generate` has --weights.
void require_weights(std::string_view command, const Config& config) {
  if (config.weights.empty()) {
    throw UsageError(fmt::format("kolo-train {}: --weights is missing: name a file", command));
  }
}

/// Checks that the run's folder has the last checkpoint and all numbers. Call after training, when
/// all other results are written. Errors: KoloError(kIo) if any is missing, naming what exists.
void require_complete(const Config& config, const Summary& summary, bool log_is_complete) {
  std::string what;
  if (!summary.is_saved) {
    const std::vector<std::uint64_t> steps = RunFolder(config.run).steps();
    const std::string newest = steps.empty()
                                   ? "there is none"
                                   : fmt::format("the newest there is of step {}", steps.front());
    what = fmt::format("no checkpoint of the last step, {}, could be written; {}", summary.steps,
                       newest);
  } else if (!log_is_complete) {
    what = "numbers of the run could not be written; its last checkpoint is complete";
  } else {
    return;
  }
  throw KoloError(
      {.code = ErrorCode::kIo, .what = fmt::format("{}: {}", config.run.string(), what)});
}

void train_job(const Catalog& catalog, const CommandLine& command_line) {
  const Config& config = command_line.config;
  std::optional<StopSignals> signals;  // created before any thread starts
  if (!config.run.empty()) signals.emplace();
  set_compute_threads(config.threads);
  Runtime runtime = Runtime::from_environment(config.runtime);
  expect_output(runtime, config.json);
  expect_output(runtime, config.export_file);
  const Task task = make_task(config, catalog);
  require_same_job(config, runtime, task);
  const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);

  std::optional<Progress> progress;
  std::optional<RunLog> run_log;
  std::vector<TrainingListener*> listeners;
  if (runtime.rank() == 0) {
    progress.emplace(stdout, progress_style(config.progress, stdout), task.unit);
    progress->note(describe(config, runtime, task, *learner));
    listeners.push_back(&*progress);
    if (!config.run.empty()) {
      std::vector<Setting> settings = command_line.settings;
      for (Setting& setting : settings_of(runtime.options())) settings.push_back(setting);
      run_log.emplace(config.run, to_toml(settings), task.data.text_files);
      listeners.push_back(&*run_log);
    }
  }
  const std::optional<Summary> summary =
      train(config, runtime, task, catalog.lr_schedules.at(config.lr_schedule), *learner, listeners,
            [&signals] { return signals && signals->has_come(); });
  if (summary) {
    const ParameterSet& weights = learner->whole_parameters();
    on_first_rank(runtime, [&] {
      const ModelEntry& model = catalog.models.at(config.model);
      if (model.generate && config.sample_bytes > 0 && task.data.tokenizer != nullptr) {
        progress->note("generated text:\n" +
                       printable(model.generate(model_setting(config, task), weights)));
      }
      if (!config.json.empty()) write_file(config.json, to_json(*summary));
      if (!config.export_file.empty()) {
        export_weights(weights, config.export_file, task.data.text_files);
      }
    });
  }
  if (progress && summary) progress->note(to_line(*summary));
  runtime.close();
  if (summary) require_complete(config, *summary, !run_log || run_log->is_complete());
}

void evaluate_job(const Catalog& catalog, const CommandLine& command_line) {
  Config config = command_line.config;
  require_weights("evaluate", config);
  config.weight_average = 0.0f;  // the file already has the means
  config.weights_part = "all";   // all weights must be in the file
  set_compute_threads(config.threads);
  Runtime runtime = Runtime::from_environment(config.runtime);
  expect_output(runtime, config.json);
  const Task task = make_task(config, catalog);
  require_same_job(config, runtime, task);
  const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);
  const std::size_t all = task.data.held_out->size();
  const std::size_t asked = config.eval_samples.value_or(0);
  const EvenlySpread held_out(*task.data.held_out, asked > 0 ? std::min(all, asked) : all);
  DataLoader loader = make_held_out_loader(config, runtime, held_out);
  std::optional<Progress> progress;
  if (runtime.rank() == 0) {
    progress.emplace(stderr, progress_style(config.progress, stderr), task.unit);
  }
  const LossSums sums = evaluate(runtime, *learner, loader, [&](std::size_t done) {
    if (progress) progress->evaluating(done, loader.steps_per_epoch());
  });
  on_first_rank(runtime, [&] {
    const Evaluation evaluation{.samples = held_out.size(),
                                .loss = sums.loss / sums.rows,
                                .metric = task.metric,
                                .value = task.metric.of(sums),
                                .bits_per_byte = task.bits_per_byte(sums.loss / sums.rows)};
    fmt::print("{}\n", to_line(evaluation));
    if (!config.json.empty()) write_file(config.json, to_json(evaluation));
  });
  runtime.close();
}

/// Generates text on this process alone, because the result would be equal on all ranks.
void generate_job(const Catalog& catalog, const CommandLine& command_line) {
  const Config& config = command_line.config;
  require_weights("generate", config);
  const ModelEntry& entry = catalog.models.at(config.model);
  if (!entry.generate) {
    throw_config_error(fmt::format("--model {}: it makes no text", config.model));
  }
  set_compute_threads(config.threads);
  std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(config.text_files);
  if (tokenizer == nullptr && !config.data.empty()) {
    tokenizer = make_task(config, catalog).data.tokenizer;
  }
  if (tokenizer == nullptr) {
    throw UsageError(
        fmt::format("kolo-train generate: {} came with no tokenizer: name one by --tokenizer, or "
                    "by --data text of the kind that the model learnt",
                    config.weights.string()));
  }
  const SampleFormat format = token_windows(tokenizer->size(), config.context);
  const ModelSetting setting{.config = config,
                             .format = format,
                             .outputs = tokenizer->size(),
                             .batch = 1,
                             .tokenizer = tokenizer.get()};
  Device device;
  const std::unique_ptr<Model> model = entry.make(setting, device);
  import_weights(config.weights, model->parameters(), entry.layouts);
  fmt::print("{}\n", printable(entry.generate(setting, model->parameters())));
}

using Job = void (*)(const Catalog&, const CommandLine&);

/// Runs `job` with the options of the command line.
int run_job(Job job, const Catalog& catalog, int argc, const char* const* argv,
            DataOption data = DataOption::kRequired) {
  CommandLine command_line = parse_command_line(argc, argv, catalog, data);
  if (command_line.text) {
    fmt::print("{}", *command_line.text);
    return 0;
  }
  command_line.config.text_files = find_vocabularies(command_line.config);
  try {
    job(catalog, command_line);
  } catch (const DivergedError& diverged) {
    Error error = diverged.error();
    log::report(error);
    return DivergedError::kExitStatus;
  }
  return 0;
}

// These commands work on files and start no job.

/// Writes the weights of a checkpoint to a file, in the layout that --layout names, if any.
int run_export(const Catalog& catalog, int argc, const char* const* argv) {
  std::vector<WeightLayout> layouts;
  for (const ModelEntry& model : catalog.models.entries()) {
    std::ranges::copy(model.layouts, std::back_inserter(layouts));
  }
  std::vector<std::string> names;
  std::string help = "Names and order of elements, those of the model unless given.";
  for (const WeightLayout& layout : layouts) {
    names.push_back(layout.name);
    help += " " + layout.name + ": " + layout.help;
  }
  CLI::App app("Writes the weights of a checkpoint to one file.", "kolo-train export");
  std::filesystem::path weights, file;
  std::string chosen;
  app.add_option("WEIGHTS", weights, "Folder of a checkpoint, such as runs/first/step-00001000")
      ->required();
  app.add_option("FILE", file, "The safetensors file to write")->required();
  app.add_option("--layout", chosen, help);
  if (!parse_arguments(app, argc, argv)) return 0;
  const auto layout = std::ranges::find(layouts, chosen, &WeightLayout::name);
  if (chosen.empty()) {
    export_weights(weights, file);
  } else if (layout == layouts.end()) {
    throw_unknown_choice("--layout", chosen, names);
  } else {
    export_weights(weights, file, *layout);
  }
  return 0;
}

/// Writes the means of the weights of several checkpoints or files to a file.
int run_average(int argc, const char* const* argv) {
  CLI::App app("Writes the means of weights to one file.", "kolo-train average");
  std::filesystem::path file;
  std::vector<std::filesystem::path> weights;
  app.add_option("FILE", file, "The safetensors file to write")->required();
  app.add_option("WEIGHTS", weights, "Folders of checkpoints, or safetensors files, of one model")
      ->required();
  if (parse_arguments(app, argc, argv)) export_average(weights, file);
  return 0;
}

}  // namespace

int run_trainer(const Catalog& catalog, int argc, const char* const* argv) {
  return run_program([&] {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "export") return run_export(catalog, argc - 1, argv + 1);
    if (command == "average") return run_average(argc - 1, argv + 1);
    if (command == "sweep") return run_sweep_command(argc - 1, argv + 1);
    if (command == "evaluate") return run_job(evaluate_job, catalog, argc - 1, argv + 1);
    if (command == "generate") {
      return run_job(generate_job, catalog, argc - 1, argv + 1, DataOption::kOptional);
    }
    if (command == "tokenize") return run_tokenize_command(argc - 1, argv + 1);
    return run_job(train_job, catalog, argc, argv);
  });
}

}  // namespace kolo::trainer
