// kolo-bench: measures the cost of Kolo's collectives, compared with other systems in the same run.

#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks/common/commands.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"

int main(int argc, char** argv) {
  using namespace kolo;
  CLI::App app("Measures Kolo's collectives, beside other systems in the same run.", "kolo-bench");
  app.set_version_flag("--version", std::string("kolo-bench ") + kVersion);
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  std::vector<bench::Command> commands;
  for (const bench::Verb verb : bench::kAllVerbs) {
    commands.push_back(bench::add_collective(app, verb));
  }
  for (const auto add : {bench::add_choice, bench::add_tune, bench::add_agreement,
                         bench::add_overlap, bench::add_error}) {
    commands.push_back(add(app));
  }
  return run_program(app, argc, argv, [&] {
    return std::ranges::find_if(commands, [](const auto& each) { return each.app->parsed(); })
        ->run();
  });
}
