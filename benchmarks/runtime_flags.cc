#include "benchmarks/runtime_flags.h"

#include <string>

#include <fmt/format.h>

#include "runtime/option_table.h"

namespace kolo::bench {

void add_runtime_flags(CLI::App& command, Options& options) {
  for (const OptionEntry& entry : option_table()) {
    const std::string names = entry.name == "wire_dtype" ? "--wire," + entry.flag() : entry.flag();
    command
        .add_option_function<std::string>(
            names, [&options, &entry](const std::string& text) { entry.set(options, text); },
            fmt::format("{} [{}]", entry.help, entry.get(options)))
        ->type_name(entry.value)
        ->group("Runtime");
  }
}

}  // namespace kolo::bench
