#pragma once

#include <string>
#include <vector>

#include "trainer/sweep/sweep.h"

namespace kolo::trainer {

/// The result of `kolo-train sweep`'s command line: a sweep, or a text to print.
struct SweepCommand {
  SweepOptions sweep;
  std::optional<std::string> text;  ///< Text of --help.
};

/// Errors: UsageError for malformed options.
SweepCommand parse_sweep(int argc, const char* const* argv);

/// `kolo-train sweep --vary OPTION=VALUE,... --folder DIR OPTIONS`: trains with every combination,
/// prints a table, and writes it to DIR/sweep.json. Returns the exit status, which is that of a run
/// if all have failed. Errors: those of `parse_sweep` and `run_sweep`.
int run_sweep_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
