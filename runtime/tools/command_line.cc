#include "runtime/tools/command_line.h"

#include <cstdint>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/output_file.h"
#include "runtime/api/kolo.h"
#include "runtime/api/option_table.h"

namespace kolo {
namespace {

/// `call`, with errors that name `flag`.
template <typename Call>
auto naming(std::string_view flag, const Call& call) {
  try {
    return call();
  } catch (const KoloError& error) {
    throw KoloError(
        {.code = error.error().code, .what = fmt::format("{}: {}", flag, error.error().what)});
  }
}

/// CLI11 asks for a subcommand before it says what it took for none.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
      !unknown.empty()) {
    return fmt::format("no subcommand '{}'", unknown.front());
  }
  return error.what();
}

}  // namespace

void add_runtime_options(CLI::App& app, Options& options, const IsWanted& is_wanted) {
  for (const OptionEntry& entry : option_table()) {
    if (!is_wanted(entry.name)) continue;
    const std::string flags = entry.name == "wire_dtype" ? "--wire," + entry.flag() : entry.flag();
    const auto set = [&entry, &options](const std::string& text) {
      naming(entry.flag(), [&] { entry.set(options, text); });
    };
    app.add_option_function<std::string>(flags, set, entry.help)
        ->type_name(entry.value)
        ->default_str(entry.get(options))
        ->group("Runtime");
  }
}

std::vector<std::size_t> parse_sizes(std::string_view flag, const std::vector<std::string>& texts) {
  std::vector<std::size_t> sizes;
  for (const std::string& text : texts) {
    sizes.push_back(naming(flag, [&] { return parse_bytes(text); }));
  }
  return sizes;
}

void expect_output(Runtime& runtime, const std::string& path) {
  std::string trouble;
  if (runtime.rank() == 0 && !path.empty()) {
    try {
      expect_writable(path);
    } catch (const KoloError& error) {
      trouble = error.error().what;
    }
  }
  std::uint8_t failed = trouble.empty() ? 0 : 1;
  runtime.broadcast("output file", {.data = &failed, .count = 1, .dtype = DType::kUInt8}, 0);
  if (failed == 0) return;
  if (trouble.empty()) trouble = "rank 0 cannot write its output file";
  throw KoloError({.code = ErrorCode::kIo, .what = trouble});
}

int run_program(const std::function<int()>& run) {
  try {
    return run();
  } catch (const KoloError& error) {
    log::error(error.what());
    return exit_status(error.error().code);
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
  return run_program([&] {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& answered) {
      return app.exit(answered);
    } catch (const CLI::ParseError& error) {
      log::error(describe(app, error) + " (--help lists all options)");
      return exit_status(ErrorCode::kUsage);
    }
    return run() ? 0 : exit_status(ErrorCode::kInternal);
  });
}

}  // namespace kolo
