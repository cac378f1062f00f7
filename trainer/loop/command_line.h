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

/// The result of the command line: a job, or a text to print before leaving with status 0.
struct CommandLine {
  Config config;
  std::vector<Setting> settings;    ///< All options with their values, except those of the runtime.
  std::optional<std::string> text;  ///< Text of --help or --version.
};

/// Whether a command needs --data.
enum class DataOption { kRequired, kOptional };

/// Parses the command line. Defaults depend on --model. KOLO_THREADS replaces a missing --threads;
/// the runtime reads its own variables. See `add_config_option` for --config.
/// Errors: UsageError for unknown or malformed options, KoloError(kConfig) as `validate`.
CommandLine parse_command_line(int argc, const char* const* argv, const Catalog& catalog,
                               DataOption data = DataOption::kRequired);

/// Adds the option --config FILE to `app`: a TOML file whose keys are the long names of options, as
/// in `batch = 32`. Tables may group them in any way; table names have no meaning. The command line
/// takes precedence over the file, and the file over the environment.
/// Errors: `app.parse` throws CLI::ParseError naming the file with the line that is not TOML, or
///         the key that is not an option or has a list as its value.
void add_config_option(CLI::App& app);

/// Returns `text`, preceded by file and line of the first option that it names (such as "--batch")
/// whose value is from --config.
std::string in_config_file(const CLI::App& app, const std::string& text);

/// Calls `call`, which parses and checks the command line. Errors: those of `call`, with file and
/// line if the value is from --config.
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

/// All options of a parsed command line with their values, given or default, except the runtime's
/// options, options without a value, and --config itself.
std::vector<Setting> settings_of(const CLI::App& app);

/// The runtime's options that must be equal on all ranks and differ from their defaults.
std::vector<Setting> settings_of(const Options& options);

/// The text of a --config file with a key for each setting.
std::string to_toml(const std::vector<Setting>& settings);

}  // namespace kolo::trainer
