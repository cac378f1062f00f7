#include "trainer/loop/weights_commands.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/checkpoint/export.h"
#include "trainer/config_error.h"

namespace kolo::trainer {
namespace {

/// Reads the arguments after the subcommand's name, then calls `run`.
int run_command(CLI::App& app, int argc, const char* const* argv,
                const std::function<void()>& run) {
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        fmt::format("{} ({} --help explains)", describe_usage_error(app, error), app.get_name()));
  }
  run();
  return 0;
}

}  // namespace

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
  return run_command(app, argc, argv, [&] {
    if (chosen.empty()) return export_weights(weights, file);
    const auto layout = std::ranges::find(layouts, chosen, &WeightLayout::name);
    if (layout == layouts.end()) throw_unknown_choice("--layout", chosen, names);
    export_weights(weights, file, *layout);
  });
}

int run_average(int argc, const char* const* argv) {
  CLI::App app("Writes the means of weights to one file.", "kolo-train average");
  std::filesystem::path file;
  std::vector<std::filesystem::path> weights;
  app.add_option("FILE", file, "The safetensors file to write")->required();
  app.add_option("WEIGHTS", weights, "Folders of checkpoints, or safetensors files, of one model")
      ->required();
  return run_command(app, argc, argv, [&] { export_average(weights, file); });
}

}  // namespace kolo::trainer
