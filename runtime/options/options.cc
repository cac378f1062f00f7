#include "runtime/options/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "comm/base/nearest_name.h"
#include "runtime/options/option_table.h"

namespace kolo {
namespace {

constexpr std::string_view kPrefix = "KOLO_";

/// Variables that other parts of the project read.
constexpr std::array<std::string_view, 13> kOtherVariables = {
    "KOLO_LOG_LEVEL", "KOLO_LIBRARY",   "KOLO_TORCH_PYTHON", "KOLO_THREADS",   "KOLO_RANKS",
    "KOLO_CLUSTER",   "KOLO_COMMIT",    "KOLO_TEST_DATA",    "KOLO_TEST_SEED", "KOLO_GPU_WORK",
    "KOLO_GPU_DEPS",  "KOLO_GPU_BUILD", "KOLO_COMMITS"};

}  // namespace

Options options_from_environment(Options options) {
  const Options defaults;
  options = validated(std::move(options));
  for (const OptionEntry& entry : option_table()) {
    const char* value = std::getenv(entry.variable().c_str());
    const bool is_set = options.given.contains(entry.name);
    if (!value || is_set || entry.get(options) != entry.get(defaults)) continue;
    set_option(entry, options, entry.variable(), value);
  }
  return options;
}

void warn_about_unknown_variables() {
  std::vector<std::string> known(kOtherVariables.begin(), kOtherVariables.end());
  for (const OptionEntry& entry : option_table()) known.push_back(entry.variable());
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with(kPrefix)) continue;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto nearest = nearest_name(name, known);
    const std::string guess = nearest ? fmt::format("; did you mean {}?", *nearest)
                                      : "; --help of every program lists the options";
    log::warn(fmt::format("unknown environment variable {}{}", name, guess));
  }
}

}  // namespace kolo
