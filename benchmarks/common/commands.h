#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "benchmarks/collective/collective_case.h"

namespace kolo::bench {

/// A subcommand of kolo-bench, parsed by CLI11.
struct Command {
  const CLI::App* app = nullptr;
  /// Runs the command; returns true if all results were right. Collective if several ranks run.
  std::function<bool()> run;
};

// Each function adds a subcommand to `app`, which outlives it.

/// Measures time and bandwidth of a collective by size, compared with other systems.
Command add_collective(CLI::App& app, Verb verb);
/// Measures the time of the algorithm that "auto" chooses, relative to the best algorithm.
Command add_choice(CLI::App& app);
/// Writes choices that are faster than those of "auto" to the calibration file.
Command add_tune(CLI::App& app);
/// Measures the time of barriers, alone and while a large bucket is in flight.
Command add_agreement(CLI::App& app);
/// Measures how much of the communication a backward pass hides, for several fusion sizes.
Command add_overlap(CLI::App& app);
/// Computes the error of a mean over 16-bit contributions on simulated ranks.
Command add_error(CLI::App& app);

}  // namespace kolo::bench
