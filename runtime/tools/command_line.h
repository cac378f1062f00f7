#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/options.h"

namespace CLI {
class App;
}

namespace kolo {

class Runtime;

/// Whether a program has the option of the runtime with this name ("fusion_bytes").
using IsWanted = std::function<bool(std::string_view name)>;

/// Adds the options of the runtime to `app`, with units and defaults; `--wire` is short for
/// `--wire-dtype`. A value that cannot be used is a KoloError(kConfig) that names the flag.
void add_runtime_options(
    CLI::App& app, Options& options,
    const IsWanted& is_wanted = [](std::string_view) { return true; });

/// What `parse_bytes` makes of each text. Errors: KoloError(kConfig) naming `flag` and the text.
std::vector<std::size_t> parse_sizes(std::string_view flag, const std::vector<std::string>& texts);

/// Finds out at the start whether rank 0 will be able to write `path`, if it has one; see
/// `expect_writable`. Collective. Errors: KoloError(kIo) on every rank.
void expect_output(Runtime& runtime, const std::string& path);

/// Calls `run`, and returns its exit status. Errors are logged, and give the status of their class.
int run_program(const std::function<int()>& run);

/// A program from its command line to its exit status: reads the arguments, then calls `run`, which
/// returns false if results are wrong.
int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<bool()>& run);

}  // namespace kolo
