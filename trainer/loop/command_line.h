#pragma once

#include <optional>
#include <string>

#include "trainer/loop/config.h"

namespace kolo::trainer {

/// What the command line asks for: a job, or a text to print and then leave with status 0.
struct CommandLine {
  Config config;
  std::optional<std::string> text;  ///< Of --help or --version.
};

/// Defaults depend on --model. KOLO_THREADS stands in for --threads; the runtime's own variables
/// are read by the runtime.
/// Errors: UsageError for unknown or malformed options, KoloError(kConfig) as `validate`.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace kolo::trainer
