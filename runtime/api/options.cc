#include "runtime/api/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "runtime/api/option_table.h"

namespace kolo {
namespace {

constexpr std::string_view kPrefix = "KOLO_";

/// Variables that other parts of the project read.
constexpr std::array<std::string_view, 10> kOtherVariables = {
    "KOLO_LOG_LEVEL", "KOLO_THREADS",   "KOLO_RANKS",    "KOLO_CLUSTER",  "KOLO_COMMIT",
    "KOLO_TEST_DATA", "KOLO_TEST_SEED", "KOLO_GPU_WORK", "KOLO_GPU_DEPS", "KOLO_GPU_BUILD"};

/// Of letters: more is another word.
constexpr std::size_t kMostMistakes = 2;

/// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

Options options_from_environment(Options options) {
  const Options defaults;
  for (const OptionEntry& entry : option_table()) {
    const char* value = std::getenv(entry.variable().c_str());
    if (!value || entry.get(options) != entry.get(defaults)) continue;
    try {
      entry.set(options, value);
    } catch (const KoloError& e) {
      throw KoloError(
          {.code = ErrorCode::kConfig, .what = entry.variable() + ": " + e.error().what});
    }
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
    // KOLO_WIRE is short for KOLO_WIRE_DTYPE, whatever else is near.
    const auto distance = [&](const std::string& each) {
      return each.starts_with(name) ? 1 : edit_distance(name, each);
    };
    const auto nearest = std::ranges::min_element(known, {}, distance);
    const std::string guess = distance(*nearest) <= kMostMistakes
                                  ? fmt::format("; did you mean {}?", *nearest)
                                  : "; --help of every program lists the options";
    log::warn(fmt::format("unknown environment variable {}{}", name, guess));
  }
}

}  // namespace kolo
