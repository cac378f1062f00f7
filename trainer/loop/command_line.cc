#include "trainer/loop/command_line.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"

namespace kolo::trainer {
namespace {

// Parses --model and --shape and returns their defaults. The defaults of all other options depend
// on these two, so they are parsed first.
Config find_defaults(const Catalog& catalog, int argc, const char* const* argv) {
  CLI::App app;
  Config first;
  // The parser of all options refuses options that are given more than once.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--model", first.model);
  app.add_option("--shape", first.shape);
  add_config_option(app);
  app.allow_extras();
  app.allow_config_extras(CLI::config_extras_mode::ignore);
  app.set_help_flag();
  return naming_config_file(app, [&] {
    app.parse(argc, argv);
    return default_config(catalog, first.model, first.shape);
  });
}

/// Lists entries as "NAME: help; NAME: help …".
template <typename Entry>
std::string list(const Registry<Entry>& registry) {
  std::string text;
  for (const Entry& entry : registry.entries()) {
    text += (text.empty() ? ". " : "; ") + entry.name + ": " + entry.help;
  }
  return text;
}

/// Lists shapes as "MODEL: SHAPE, SHAPE …; MODEL: …".
std::string list_shapes(const Catalog& catalog) {
  std::string text;
  for (const ModelEntry& model : catalog.models.entries()) {
    for (const ModelShape& shape : model.shapes) {
      const bool is_first = &shape == &model.shapes.front();
      text += is_first ? (text.empty() ? ". " : "; ") + model.name + ": " : std::string(", ");
      text += shape.name;
    }
  }
  return text;
}

/// Returns an addition to an option's help: the choices in the catalog, or the range of numbers.
std::string more_help(const ConfigOption& option, const Catalog& catalog) {
  if (option.name == "--model") {
    return list(catalog.models) +
           fmt::format("; on cuda, too: {}", fmt::join(device_models(), ", "));
  }
  if (option.name == "--shape") return list_shapes(catalog);
  if (option.name == "--task") return list(catalog.tasks);
  if (option.name == "--format") return list(catalog.datasets);
  if (option.name == "--optimizer") return list(catalog.optimizers);
  if (option.name == "--lr-schedule") return list(catalog.lr_schedules);
  const auto* range = std::get_if<ConfigRange>(&option.values);
  const std::string words = range == nullptr ? std::string() : range->words();
  return (words.empty() ? "" : "; " + words) +
         ((option.traits & kNotOnGpus) != 0 ? "; on --device cpu" : "");
}

void add_option(CLI::App& app, const ConfigOption& option, const Catalog& catalog) {
  const std::string help = option.help + more_help(option, catalog);
  CLI::Option* const added = std::visit(
      [&](auto* value) { return app.add_option(option.name, *value, help); }, option.field);
  if (std::holds_alternative<bool*>(option.field)) {
    added->type_name("on|off")->default_str(option.text());
  } else if (const auto* choices = std::get_if<Choices>(&option.values)) {
    added->type_name(fmt::format("{}", fmt::join(*choices, "|")));
  } else if (const auto* form = std::get_if<TextForm>(&option.values)) {
    added->type_name(form->name);
  }
}

/// Returns whether an entry for which `is_chosen` is true reads `option`. Adds to `owners` the
/// names of all entries that read it.
template <typename Entry, typename IsChosen>
bool is_read(const Registry<Entry>& registry, const IsChosen& is_chosen, const std::string& option,
             std::string_view registry_name, std::string& owners) {
  bool found = false;
  std::string names;
  for (const Entry& entry : registry.entries()) {
    if (std::ranges::find(entry.reads, option) == entry.reads.end()) continue;
    found |= is_chosen(entry);
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  if (!names.empty()) {
    owners += fmt::format("{}{} {}", owners.empty() ? "" : ", or ", registry_name, names);
  }
  return found;
}

/// Checks that this job reads all options that were changed. Errors: UsageError for an option that
/// it does not read, naming the entries that do.
void require_read(const CLI::App& app, const Config& c, const Catalog& catalog) {
  const auto is_named = [](const std::string& name) {
    return [&name](const auto& entry) { return entry.name == name; };
  };
  // Data that does not exist yet may have any format that the task reads.
  const DatasetEntry* const format = find_format(c, catalog);
  const TaskEntry& task = catalog.tasks.at(c.task);
  const auto may_be_format = [&](const DatasetEntry& entry) {
    return format == nullptr ? task.reads_data_of(entry.task) : entry.name == format->name;
  };
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& value = option->results().back();
    if (value == option->get_default_str()) continue;
    const std::string name = "--" + option->get_lnames().front();
    std::string owners;
    bool found = is_read(catalog.models, is_named(c.model), name, "--model", owners);
    found |= is_read(catalog.tasks, is_named(c.task), name, "--task", owners);
    found |= is_read(catalog.optimizers, is_named(c.optimizer), name, "--optimizer", owners);
    found |= is_read(catalog.datasets, may_be_format, name, "--format", owners);
    if (found || owners.empty()) continue;
    throw UsageError(fmt::format(
        "{} {} belongs to {}; this job has --model {}, --task {}, --optimizer {}{}, and would "
        "ignore it",
        name, value, owners, c.model, c.task, c.optimizer,
        format == nullptr ? std::string() : ", --format " + format->name));
  }
}

/// Lets --epochs or --steps count: what the command line has, or else the file, or else the steps
/// that are the model's default. Errors: UsageError if both are given in one place.
void choose_length(const CLI::App& app, Config& config) {
  const auto place_of = [&](const std::string& name) {
    if (app.count(name) == 0) return 0;
    return in_config_file(app, name) == name ? 2 : 1;
  };
  const int epochs = place_of("--epochs"), steps = place_of("--steps");
  // Older programs wrote both into config.toml; those epochs have the default.
  const bool is_default =
      std::to_string(config.epochs) == app.get_option("--epochs")->get_default_str();
  if (epochs > 0 && epochs == steps && !(epochs == 1 && is_default)) {
    throw UsageError(fmt::format("--epochs {} and --steps {}: only one of them can count",
                                 config.epochs, *config.steps));
  }
  if (epochs > steps) config.steps.reset();
}

/// The settings from which config.toml makes this job again.
std::vector<Setting> lasting_settings(const CLI::App& app, Config& config) {
  std::vector<Setting> settings = settings_of(app);
  for (const ConfigOption& option : options_of(config)) {
    const bool counts = option.name == "--epochs"  ? !config.steps
                        : option.name == "--steps" ? config.steps.has_value()
                                                   : (option.traits & kOfCall) == 0;
    if (counts) continue;
    std::erase_if(settings, [&](const Setting& each) { return "--" + each.option == option.name; });
  }
  return settings;
}

/// Returns the arguments, with "--batch auto" replaced by "--balance auto".
std::vector<const char*> with_balance(int argc, const char* const* argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--batch=auto") arguments[i] = "--balance=auto";
    if (argument != "--batch" || i + 1 == arguments.size()) continue;
    if (std::string_view(arguments[i + 1]) == "auto") arguments[i] = "--balance";
  }
  return arguments;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Catalog& catalog,
                               DataOption data) {
  const std::vector<const char*> arguments = with_balance(argc, argv);
  CLI::App app(
      "Trains a model on all ranks of a job; start it alone or under mpirun.\n\n"
      "  kolo-train evaluate --weights FILE OPTIONS    loss and metric on held-out data\n"
      "  kolo-train generate --weights FILE OPTIONS    text that continues --prompt\n"
      "  kolo-train export CHECKPOINT FILE             its weights, as one safetensors file\n"
      "  kolo-train average FILE WEIGHTS...            the means of weights\n"
      "  kolo-train tokenize --data TEXT --out FOLDER  text as tokens, for --data of training\n"
      "  kolo-train sweep --vary lr=1e-3,3e-3 OPTIONS  trains with each, and compares\n\n"
      "OPTIONS are those of training; --config RUN/config.toml names those of a run.",
      "kolo-train");
  CommandLine result;
  try {
    result.config = find_defaults(catalog, static_cast<int>(arguments.size()), arguments.data());
    Config& config = result.config;
    app.option_defaults()->always_capture_default();
    app.footer(help_footer());
    app.set_version_flag("--version", std::string("kolo-train " KOLO_VERSION));
    for (const ConfigOption& option : options_of(config)) add_option(app, option, catalog);
    app.get_option("--data")->required(data == DataOption::kRequired);
    app.get_option("--threads")->envname("KOLO_THREADS");
    app.get_option("--prompt")->default_str("");
    add_runtime_options(app, config.runtime);
    add_config_option(app);
    check_counts(app);
    naming_config_file(app, [&] {
      app.parse(static_cast<int>(arguments.size()), arguments.data());
      choose_length(app, config);
      validate(config, catalog);
      require_read(app, config, catalog);
    });
    result.settings = lasting_settings(app, config);
  } catch (const CLI::CallForHelp&) {
    result.text = app.help();
    return result;
  } catch (const CLI::CallForVersion& version) {
    result.text = std::string(version.what()) + "\n";
    return result;
  } catch (const CLI::ParseError& error) {
    throw UsageError(describe_usage_error(app, error) + " (--help lists all options)");
  }
  return result;
}

}  // namespace kolo::trainer
