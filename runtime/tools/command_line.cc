#include "runtime/tools/command_line.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/nearest_name.h"
#include "comm/base/output_file.h"
#include "runtime/api/kolo.h"
#include "runtime/options/option_table.h"
#include "runtime/options/option_values.h"

namespace kolo {
namespace {

/// Calls `call`, and adds `flag` to its errors.
template <typename Call>
auto naming(std::string_view flag, const Call& call) {
  try {
    return call();
  } catch (const KoloError& error) {
    throw KoloError(
        {.code = error.error().code, .what = fmt::format("{}: {}", flag, error.error().what)});
  }
}

/// Returns the selected subcommand, or the program itself.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

/// Returns the names of all flags, such as "--fusion-bytes".
std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

/// Returns a sentence about the first option of `command` that is given more often than it may be;
/// empty if none is.
std::string describe_repetition(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const auto most = static_cast<std::size_t>(option->get_items_expected_max());
    if (option->get_multi_option_policy() != CLI::MultiOptionPolicy::Throw || most == 0 ||
        option->results().size() <= most) {
      continue;
    }
    return fmt::format("{} is given more than once: {}", option->get_name(),
                       fmt::join(option->results(), ", "));
  }
  return {};
}

/// CLI11 before 2.3 takes a negative number, or one of more than 64 bits, for a huge count.
std::string check_count(const std::string& text) {
  errno = 0;
  std::strtoull(text.c_str(), nullptr, 0);
  const bool is_wrong = CLI::detail::trim_copy(text).starts_with('-') || errno == ERANGE;
  return is_wrong ? fmt::format("'{}' is negative or too large", text) : std::string();
}

std::string suggestion(std::string_view text, const std::vector<std::string>& names) {
  const auto nearest = nearest_name(text, names);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : std::string();
}

}  // namespace

void check_counts(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name().starts_with("UINT")) option->check(check_count);
  }
  for (CLI::App* command : app.get_subcommands({})) check_counts(*command);
}

void add_runtime_options(CLI::App& app, Options& options, const IsWanted& is_wanted) {
  for (const OptionEntry& entry : option_table()) {
    if (!is_wanted(entry.name)) continue;
    const std::string flags = entry.name == "wire_dtype" ? "--wire," + entry.flag() : entry.flag();
    const auto set = [&entry, &options](const std::string& text) {
      set_option(entry, options, entry.flag(), text);
    };
    app.add_option_function<std::string>(flags, set, entry.help)
        ->type_name(entry.value)
        ->default_str(entry.get(options))
        ->group(kRuntimeGroup);
  }
}

bool is_of_gradients(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"compression", "wire_dtype", "fusion_bytes",
                                                      "device_fusion_bytes"};
  return std::ranges::find(kNames, name) != kNames.end();
}

void require_read(const CLI::App& command, std::initializer_list<OptionUse> uses) {
  for (const auto& [flag, is_read, reader] : uses) {
    if (is_read || command.count(std::string(flag)) == 0) continue;
    throw UsageError(fmt::format(
        "{} belongs to {}; this call would ignore it (--help lists all options)", flag, reader));
  }
}

void require_runtime_read(const CLI::App& command, const IsWanted& is_read,
                          std::string_view reader) {
  for (const OptionEntry& entry : option_table()) {
    const std::string flag = entry.flag();
    if (command.get_option_no_throw(flag) == nullptr) continue;
    require_read(command, {{flag, is_read(entry.name), reader}});
  }
}

std::function<std::string(const std::string&)> one_of(std::vector<std::string> names) {
  return [names = std::move(names)](const std::string& text) {
    const bool is_known = std::ranges::find(names, text) != names.end();
    return is_known ? std::string() : describe_unknown(text, names);
  };
}

std::vector<std::size_t> parse_sizes(std::string_view flag, const std::vector<std::string>& texts) {
  std::vector<std::size_t> sizes;
  for (const std::string& text : texts) {
    sizes.push_back(naming(flag, [&] { return parse_bytes(text); }));
  }
  return sizes;
}

std::string help_footer() {
  std::string text = "Exit status:\n  0   success\n";
  for (const auto& [code, meaning] : std::initializer_list<std::pair<ErrorCode, const char*>>{
           {ErrorCode::kUsage, "usage: unknown option, choice or subcommand, or a wrong call"},
           {ErrorCode::kData, "a data set or checkpoint is missing, truncated or malformed"},
           {ErrorCode::kPeerLost, "another rank died, froze or became unreachable"},
           {ErrorCode::kInternal, "internal error, or a wrong result"},
           {ErrorCode::kResources, "out of memory, arena space or file descriptors"},
           {ErrorCode::kIo, "a file or socket operation failed"},
           {ErrorCode::kTimeout, "a time limit passed although all ranks are alive"},
           {ErrorCode::kMismatch, "ranks disagree about a tensor"},
           {ErrorCode::kAuth, "a peer does not know the secret of the job"},
           {ErrorCode::kConfig, "an option is malformed, out of range or not supported"}}) {
    text += fmt::format("  {}  {}\n", exit_status(code), meaning);
  }
  text +=
      "\nEnvironment:\n"
      "  KOLO_NAME       each option --name of the runtime, unless the flag is given\n"
      "  KOLO_LOG_LEVEL  error, warn (default), info or debug";
  return text;
}

std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  const std::vector<std::string> unknown = command.remaining();
  if (!unknown.empty()) {
    const std::string& first = unknown.front();
    const std::string text = first.substr(0, first.find('='));
    if (text.starts_with('-')) {
      if (std::ranges::count(option_table(), text, &OptionEntry::flag) > 0) {
        return fmt::format("{} is an option of the runtime that {} would ignore", text,
                           command.get_name());
      }
      return fmt::format("no option {}{}", text, suggestion(text, flags_of(command)));
    }
    // CLI11 reports a missing subcommand before it names an argument that is not a subcommand.
    const std::vector<std::string> subcommands = subcommands_of(command);
    if (!subcommands.empty()) {
      return fmt::format("no subcommand '{}'{}", text, suggestion(text, subcommands));
    }
  }
  const std::string repetition = describe_repetition(command);
  return repetition.empty() ? error.what() : repetition;
}

bool parse_arguments(CLI::App& app, int argc, const char* const* argv) {
  check_counts(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        fmt::format("{} ({} --help explains)", describe_usage_error(app, error), app.get_name()));
  }
  return true;
}

void on_first_rank(Runtime& runtime, const std::function<void()>& write) {
  std::optional<KoloError> failure;
  if (runtime.rank() == 0) {
    try {
      write();
    } catch (const KoloError& error) {
      failure = error;
    }
  }
  constexpr std::uint8_t kDone = 255;
  std::uint8_t outcome = failure ? static_cast<std::uint8_t>(failure->error().code) : kDone;
  runtime.broadcast("outcome on rank 0", {&outcome, 1}, 0).wait();
  if (failure) throw KoloError(*std::move(failure));
  if (outcome == kDone) return;
  throw KoloError({.code = static_cast<ErrorCode>(outcome),
                   .rank = runtime.rank(),
                   .peer = 0,
                   .what = "rank 0 could not write what all ranks made; its message says why"});
}

void expect_output(Runtime& runtime, const std::string& path) {
  on_first_rank(runtime, [&] {
    if (!path.empty()) expect_writable(path);
  });
}

int run_program(const std::function<int()>& run) {
  try {
    return run();
  } catch (const KoloError& caught) {
    Error error = caught.error();
    log::report(error);
    return exit_status(error.code);
  } catch (const std::bad_alloc&) {
    log::error("out of memory");
    return exit_status(ErrorCode::kResources);
  } catch (const std::exception& error) {
    log::error(error.what());
    return exit_status(ErrorCode::kInternal);
  }
}

int run_program(CLI::App& app, int argc, const char* const* argv,
                const std::function<bool()>& run) {
  app.footer(help_footer());
  check_counts(app);
  return run_program([&] {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& answered) {
      return app.exit(answered);
    } catch (const CLI::ParseError& error) {
      log::error(describe_usage_error(app, error) + " (--help lists all options)");
      return exit_status(ErrorCode::kUsage);
    }
    return run() ? 0 : exit_status(ErrorCode::kInternal);
  });
}

}  // namespace kolo
