#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/all_reduce/all_reduce_case.h"
#include "benchmarks/all_reduce/paired_rounds.h"
#include "runtime/api/kolo.h"
#include "topology/process_grid.h"

namespace kolo::bench {

struct ChoiceOptions {
  std::vector<std::size_t> sizes;  ///< Bytes.
  AllReduceCase what = {};         ///< Dtype, wire and home of every case.
  double seconds = 0.3;            ///< For the timed iterations of one algorithm at one size.
  int rounds = 60;                 ///< At most; fewer where an iteration takes long.
};

/// One algorithm on one case.
struct ChoiceCandidate {
  std::string algorithm;
  double median_us = 0;  ///< Of its rounds' medians, times of the slowest rank.
  double predicted_us = 0;
};

/// What "auto" did with one case, and what each algorithm would have done.
struct ChoiceRow {
  AllReduceCase what;
  ChoiceCandidate chosen;  ///< "auto" itself.
  std::vector<ChoiceCandidate> forced = {};
  int rounds = 0;
  std::size_t best = 0;    ///< Index in `forced`, of the best that was not chosen.
  PairedRatio ratio = {};  ///< "auto" to that one.
  /// "auto" to what it chose, forced by name: the same schedule, so what is not 1 is noise.
  std::optional<PairedRatio> noise = std::nullopt;
};

/// Measures "auto" beside every forced algorithm. All of one case take turns in many short rounds,
/// in an order that changes; those that take more than twice as long as the best drop out after the
/// second one. `runtimes` are those of "auto" and then of `algorithms`, in this order. Collective;
/// rows are equal on all ranks. Returns whether all sums were right, before and after.
bool measure_choice(const std::vector<Runtime*>& runtimes,
                    const std::vector<std::string>& algorithms, const ChoiceOptions& options,
                    const std::function<void(const ChoiceRow&)>& report);

/// How many ranks each node has. Collective.
ProcessGrid grid_of(Runtime& runtime);

}  // namespace kolo::bench
