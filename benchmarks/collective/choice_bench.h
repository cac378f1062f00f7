#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/collective/paired_rounds.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

struct ChoiceOptions {
  std::vector<std::size_t> sizes;  ///< Bytes.
  CollectiveCase what = {};        ///< Collective, dtype, wire and home of every case.
  double seconds = 0.3;            ///< For the timed iterations of one algorithm at one size.
  int rounds = 60;  ///< Largest number of rounds; fewer where an iteration takes long.
  /// Ranks begin each call together, as they always do those of a root.
  bool together = false;
};

/// One algorithm on one case.
struct ChoiceCandidate {
  std::string algorithm;
  double median_us = 0;  ///< Median of its rounds' medians, times of the slowest rank.
  double predicted_us = 0;
};

/// The result of "auto" for one case, and those of all algorithms.
struct ChoiceRow {
  CollectiveCase what;
  ChoiceCandidate chosen;  ///< "auto" itself.
  std::vector<ChoiceCandidate> forced = {};
  int rounds = 0;
  std::size_t best = 0;    ///< Index in `forced` of the best algorithm that was not chosen.
  PairedRatio ratio = {};  ///< "auto" relative to that one.
  /// "auto" relative to its choice, forced by name: the same schedule, so a difference from 1 is
  /// noise.
  std::optional<PairedRatio> noise = std::nullopt;
};

/// Measures "auto" beside every forced algorithm. All algorithms of one case alternate in many
/// short rounds, in changing order; those that take more than twice as long as the best are dropped
/// after the second round. `runtimes` are those of "auto" and then of `algorithms`, in this order.
/// Collective; rows are equal on all ranks. Returns true if all results were right, before and
/// after.
bool measure_choice(const std::vector<Runtime*>& runtimes,
                    const std::vector<std::string>& algorithms, const ChoiceOptions& options,
                    const std::function<void(const ChoiceRow&)>& report);

}  // namespace kolo::bench
