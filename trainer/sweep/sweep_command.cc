#include "trainer/sweep/sweep_command.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "comm/base/output_file.h"
#include "runtime/tools/command_line.h"

namespace kolo::trainer {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// The value of `flag` among the options that are passed on, as "--steps 100" or "--steps=100".
std::string value_of(const std::vector<std::string>& words, std::string_view flag) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == flag) return i + 1 < words.size() ? words[i + 1] : "";
    if (word.starts_with(flag) && word.substr(flag.size()).starts_with('=')) {
      return std::string(word.substr(flag.size() + 1));
    }
  }
  return "";
}

std::size_t steps_in(const std::vector<std::string>& words) {
  const std::string text = value_of(words, "--steps");
  std::size_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || steps == 0) {
    throw UsageError("kolo-train sweep: --rounds needs --steps NUMBER on the command line");
  }
  return steps;
}

void refuse_own(const std::vector<std::string>& words) {
  for (const char* flag : {"--run", "--resume", "--json", "--stop-after"}) {
    if (!value_of(words, flag).empty()) {
      throw UsageError(fmt::format("kolo-train sweep: {} is what it gives each run itself", flag));
    }
  }
}

}  // namespace

SweepCommand parse_sweep(int argc, const char* const* argv) {
  CLI::App app(
      "Trains with every combination of some options, and compares the results. All other options "
      "are those of kolo-train, for every run.",
      "kolo-train sweep");
  SweepCommand command;
  SweepOptions& sweep = command.sweep;
  std::vector<std::string> dimensions;
  std::string launcher;
  app.add_option("--vary", dimensions,
                 "Values of an option, OPTION=VALUE,VALUE as in lr=1e-3,3e-3; may come repeatedly")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--folder", sweep.folder, "Folder of all runs; a run that it has goes on")
      ->required();
  app.add_option("--launcher", launcher,
                 "What starts each run, such as 'mpirun -np 4'; none alone");
  app.add_option("--at-once", sweep.at_once, "Runs side by side; at least 1, which is the default");
  app.add_option("--rounds", sweep.rounds,
                 "Successive halving: in each round the better half of the runs goes on to twice "
                 "the steps; 1, the default: all runs take all steps");
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    command.text = app.help();
    return command;
  } catch (const CLI::ParseError& error) {
    throw UsageError(describe_usage_error(app, error) + " (kolo-train sweep --help explains)");
  }
  if (sweep.at_once == 0 || sweep.rounds == 0) {
    throw UsageError("kolo-train sweep: --at-once and --rounds must be at least 1");
  }
  for (const std::string& text : dimensions) sweep.dimensions.push_back(parse_dimension(text));
  sweep.options = app.remaining();
  refuse_own(sweep.options);
  if (sweep.rounds > 1) sweep.steps = steps_in(sweep.options);
  sweep.command = words_of(launcher);
  sweep.command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  return command;
}

int run_sweep_command(int argc, const char* const* argv) {
  const SweepCommand command = parse_sweep(argc, argv);
  if (command.text) {
    fmt::print("{}", *command.text);
    return 0;
  }
  const std::vector<SweepResult> results = run_sweep(command.sweep, stdout);
  fmt::print("\n{}", to_table(results));
  write_file(command.sweep.folder / "sweep.json", to_json(results));
  return results.front().status;
}

}  // namespace kolo::trainer
