#include "trainer/loop/export_command.h"

#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/checkpoint/export.h"

namespace kolo::trainer {

bool is_export(int argc, const char* const* argv) {
  return argc > 1 && std::string_view(argv[1]) == "export";
}

int run_export(int argc, const char* const* argv) {
  CLI::App app("Writes the weights of a checkpoint to one file.", "kolo-train export");
  std::filesystem::path checkpoint;
  std::filesystem::path file;
  app.add_option("CHECKPOINT", checkpoint, "Its folder, such as runs/first/step-00001000")
      ->required();
  app.add_option("FILE", file, "The safetensors file to write")->required();
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(describe_usage_error(app, error) + " (kolo-train export --help explains)");
  }
  export_checkpoint(checkpoint, file);
  return 0;
}

}  // namespace kolo::trainer
