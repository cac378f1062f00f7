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

/// A function that returns whether a program has the runtime option `name` ("fusion_bytes").
using IsWanted = std::function<bool(std::string_view name)>;

/// The heading of the runtime options in --help.
inline constexpr const char* kRuntimeGroup = "Runtime";

/// Adds the runtime options to `app`, with units and defaults; `--wire` is short for
/// `--wire-dtype`. An invalid value gives the error of `set_option`.
void add_runtime_options(
    CLI::App& app, Options& options,
    const IsWanted& is_wanted = [](std::string_view) { return true; });

/// Returns whether only gradient sets read this option.
bool is_of_gradients(std::string_view name);

/// An option, whether this call reads it, and the setting that is needed for that: "--memory user".
struct OptionUse {
  std::string_view flag;
  bool is_read;
  std::string_view reader;
};

/// Throws UsageError if an option was given that this call would ignore; the error names the
/// setting that reads the option. Precondition: `command` has these options.
void require_read(const CLI::App& command, std::initializer_list<OptionUse> uses);

/// Works like `require_read`, for all runtime options of `command`.
void require_runtime_read(const CLI::App& command, const IsWanted& is_read,
                          std::string_view reader);

/// Makes a check for `CLI::Option`: the value is in `names`; the error suggests the nearest name.
std::function<std::string(const std::string& text)> one_of(std::vector<std::string> names);

/// Converts each text ("4M") to bytes. Throws KoloError(kConfig), which names `flag` and text.
std::vector<std::size_t> parse_sizes(std::string_view flag, const std::vector<std::string>& texts);

/// Returns the last part of every program's --help: exit statuses and environment variables.
std::string help_footer();

/// Lets all options with whole numbers from 0 on, also those of subcommands, refuse negative
/// numbers and those of more than 64 bits. Call it when `app` has its options.
void check_counts(CLI::App& app);

/// Returns the text of a usage error, with the nearest name of an option or subcommand, or with all
/// values of an option that is given more than once.
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

/// Parses the arguments of a subcommand; returns false if --help was given, and prints it. Throws
/// UsageError, which mentions the subcommand's --help.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv);

/// Calls `write` on rank 0, to write the results of all ranks. Collective. If `write` throws, rank
/// 0 throws its error, and the other ranks throw an error of the same class.
void on_first_rank(Runtime& runtime, const std::function<void()>& write);

/// Checks whether rank 0 can write to `path`, unless `path` is empty; see `expect_writable`.
/// Collective; called before the work begins. Throws KoloError(kIo) on every rank.
void expect_output(Runtime& runtime, const std::string& path);

/// Calls `run`, and returns its exit status. If `run` throws, logs the error unless that was done
/// before, and returns the exit status of its class.
int run_program(const std::function<int()>& run);

/// Runs a program: parses the arguments, calls `run`, and returns the exit status. `run` returns
/// false if results are wrong.
int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<bool()>& run);

}  // namespace kolo
