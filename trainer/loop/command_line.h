#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/options/options.h"
#include "trainer/catalog.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// The parsed command line: a job, or a text to print before the program exits with status 0.
struct CommandLine {
  Config config;
  std::vector<Setting> settings;    ///< Values of all options except those of the runtime.
  std::optional<std::string> text;  ///< Output of --help or --version; empty for a job.
};

/// Whether a command needs --data.
enum class DataOption { kRequired, kOptional };

/// Parses and validates the command line. Defaults depend on --model and --shape. The environment
/// variable KOLO_THREADS sets --threads if that is missing; the runtime reads its own variables.
/// See `add_config_option` for --config.
/// Errors: UsageError for unknown, malformed or unused options; those of `validate`.
CommandLine parse_command_line(int argc, const char* const* argv, const Catalog& catalog,
                               DataOption data = DataOption::kRequired);

/// Adds the option --config FILE to `app`. FILE is a TOML file whose keys are the long names of
/// options, as in `batch = 32`. Tables may group keys; table names have no meaning. The command
/// line takes precedence over the file, and the file over the environment.
/// Errors: `app.parse` throws CLI::ParseError naming file and line, if the file is not TOML, a key
///         is not an option, two keys set the same one, or a value is a list.
void add_config_option(CLI::App& app);

/// Returns the error message `text`, preceded by a file and line of --config if `text` names an
/// option (such as "--batch") whose value is from that file. The first such option counts.
std::string in_config_file(const CLI::App& app, const std::string& text);

/// Calls `call`, which parses and checks the command line, and returns its result. Errors: those of
/// `call`, with messages extended by `in_config_file`.
template <typename Call>
auto naming_config_file(const CLI::App& app, const Call& call) {
  try {
    return call();
  } catch (const CLI::ConversionError& error) {
    throw CLI::ParseError(in_config_file(app, error.what()), error.get_exit_code());
  } catch (const CLI::ValidationError& error) {
    throw CLI::ParseError(in_config_file(app, error.what()), error.get_exit_code());
  } catch (const KoloError& error) {
    Error named = error.error();
    named.what = in_config_file(app, named.what);
    throw KoloError(std::move(named));
  }
}

/// The options of a parsed command line with their values, given or default. Excludes the runtime's
/// options, options without a value, and --config.
std::vector<Setting> settings_of(const CLI::App& app);

/// The runtime's options that must be equal on all ranks and whose values differ from the defaults.
std::vector<Setting> settings_of(const Options& options);

/// The text of a --config file that sets these options.
std::string to_toml(const std::vector<Setting>& settings);

}  // namespace kolo::trainer
