#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "benchmarks/collective/collective_case.h"

namespace kolo::bench {

/// A subcommand of kolo-bench.
struct Command {
  const CLI::App* app = nullptr;
  /// Returns true if all results were right. Collective if several ranks measure.
  std::function<bool()> run;
};

// Each function adds a subcommand to `app`, which outlives it.

/// Time and bandwidth of a collective by size, compared with other systems.
Command add_collective(CLI::App& app, Verb verb);
/// The time of "auto" relative to the best algorithm, each forced by name.
Command add_choice(CLI::App& app);
/// The time of barriers, alone and while a large bucket is in flight.
Command add_agreement(CLI::App& app);
/// The share of communication that a backward pass hides, by fusion size.
Command add_overlap(CLI::App& app);
/// The error of a mean over 16-bit contributions, on simulated ranks.
Command add_error(CLI::App& app);

}  // namespace kolo::bench
