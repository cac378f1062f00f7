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

/// Whether a program has the option of the runtime with this name ("fusion_bytes").
using IsWanted = std::function<bool(std::string_view name)>;

/// The heading under which --help has the options of the runtime.
inline constexpr const char* kRuntimeGroup = "Runtime";

/// Adds the options of the runtime to `app`, with units and defaults; `--wire` is short for
/// `--wire-dtype`. A flag with a value that cannot be used is the error of `set_option`.
void add_runtime_options(
    CLI::App& app, Options& options,
    const IsWanted& is_wanted = [](std::string_view) { return true; });

/// Options that only sets of gradients read.
bool is_of_gradients(std::string_view name);

/// An option, whether this call reads it, and what does: "--memory user".
struct OptionUse {
  std::string_view flag;
  bool is_read;
  std::string_view reader;
};

/// Before: `command` has these options.
/// Errors: UsageError for one that was given and that this call would ignore, with what reads it.
void require_read(const CLI::App& command, std::initializer_list<OptionUse> uses);

/// The same of all options of the runtime that `command` has.
void require_runtime_read(const CLI::App& command, const IsWanted& is_read,
                          std::string_view reader);

/// A check for `CLI::Option`: the value is one of `names`; the error suggests the nearest one.
std::function<std::string(const std::string& text)> one_of(std::vector<std::string> names);

/// The bytes that each text stands for ("4M"). Errors: KoloError(kConfig) naming `flag` and text.
std::vector<std::size_t> parse_sizes(std::string_view flag, const std::vector<std::string>& texts);

/// The end of every program's --help: exit statuses and environment variables.
std::string help_footer();

/// The text of a usage error, with the option or subcommand that was probably meant.
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

/// Reads the arguments of a subcommand; false if --help was asked for and has been printed.
/// Errors: UsageError that points to its --help.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv);

/// Rank 0 calls `write`, which writes the results of all. Collective. Errors: those of `write` on
/// rank 0, and of the same class on all others.
void on_first_rank(Runtime& runtime, const std::function<void()>& write);

/// Finds out at the start whether rank 0 will be able to write `path`, if it has one; see
/// `expect_writable`. Collective. Errors: KoloError(kIo) on every rank.
void expect_output(Runtime& runtime, const std::string& path);

/// Calls `run`, and returns its exit status. An error is logged, unless it is logged already, and
/// gives the status of its class.
int run_program(const std::function<int()>& run);

/// A program from its command line to its exit status: reads the arguments, then calls `run`, which
/// returns false if results are wrong.
int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<bool()>& run);

}  // namespace kolo
