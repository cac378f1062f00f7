#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/catalog.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// The result of the command line: a job, or a text to print before leaving with status 0.
struct CommandLine {
  Config config;
  std::vector<Setting> settings;    ///< Options with their values, but those of the runtime.
  std::optional<std::string> text;  ///< Text of --help or --version.
};

/// Whether a command can do without --data.
enum class DataOption { kRequired, kOptional };

/// Defaults depend on --model. KOLO_THREADS replaces a missing --threads; the runtime reads its own
/// variables. See `add_config_option` for --config.
/// Errors: UsageError for unknown or malformed options, KoloError(kConfig) as `validate`.
CommandLine parse_command_line(int argc, const char* const* argv, const Catalog& catalog,
                               DataOption data = DataOption::kRequired);

}  // namespace kolo::trainer
