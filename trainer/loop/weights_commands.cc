#include "trainer/loop/weights_commands.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/checkpoint/export.h"

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

int run_export(int argc, const char* const* argv) {
  CLI::App app("Writes the weights of a checkpoint to one file.", "kolo-train export");
  std::filesystem::path weights, file;
  app.add_option("WEIGHTS", weights, "Folder of a checkpoint, such as runs/first/step-00001000")
      ->required();
  app.add_option("FILE", file, "The safetensors file to write")->required();
  return run_command(app, argc, argv, [&] { export_weights(weights, file); });
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
