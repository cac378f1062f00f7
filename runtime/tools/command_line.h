#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/options.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace kolo {

class Runtime;

/// Whether a program has the runtime option with this name ("fusion_bytes").
using IsWanted = std::function<bool(std::string_view name)>;

/// The heading of the runtime options in --help.
inline constexpr const char* kRuntimeGroup = "Runtime";

/// Adds the runtime options to `app`, with units and defaults; `--wire` is short for
/// `--wire-dtype`. An invalid value gives the error of `set_option`.
void add_runtime_options(
    CLI::App& app, Options& options,
    const IsWanted& is_wanted = [](std::string_view) { return true; });

/// Whether only gradient sets read this option.
bool is_of_gradients(std::string_view name);

/// An option, whether this call reads it, and the setting that makes it be read: "--memory user".
struct OptionUse {
  std::string_view flag;
  bool is_read;
  std::string_view reader;
};

/// Precondition: `command` has these options. Errors: UsageError for an option that was given and
/// that this call would ignore; it says what reads the option.
void require_read(const CLI::App& command, std::initializer_list<OptionUse> uses);

/// As `require_read`, for all runtime options of `command`.
void require_runtime_read(const CLI::App& command, const IsWanted& is_read,
                          std::string_view reader);

/// A check for `CLI::Option`: the value must be one of `names`; the error suggests the nearest one.
std::function<std::string(const std::string& text)> one_of(std::vector<std::string> names);

/// Converts each text ("4M") to bytes. Errors: KoloError(kConfig) naming `flag` and text.
std::vector<std::size_t> parse_sizes(std::string_view flag, const std::vector<std::string>& texts);

/// The end of every program's --help: exit statuses and environment variables.
std::string help_footer();

/// The text of a usage error, with the option or subcommand that was probably meant.
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

/// Parses the arguments of a subcommand; returns false if --help was given and has been printed.
/// Errors: UsageError that points to its --help.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv);

/// Calls `write` on rank 0, which writes the results of all ranks. Collective. Errors: those of
/// `write` on rank 0; an error of the same class on all others.
void on_first_rank(Runtime& runtime, const std::function<void()>& write);

/// Checks at the start whether rank 0 can write to `path`, unless it is empty; see
/// `expect_writable`. Collective. Errors: KoloError(kIo) on every rank.
void expect_output(Runtime& runtime, const std::string& path);

/// Calls `run`, and returns its exit status. Logs an error, unless it is logged already, and
/// returns the exit status of its class.
int run_program(const std::function<int()>& run);

/// Runs a program: parses the arguments, calls `run`, which returns false if results are wrong, and
/// returns the exit status.
int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<bool()>& run);

}  // namespace kolo
