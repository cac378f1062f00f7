#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/all_reduce_bench.h"
#include "benchmarks/all_reduce_system.h"
#include "runtime/kolo.h"
#include "topology/process_grid.h"

namespace kolo::bench {

/// One algorithm on one case.
struct ChoiceCandidate {
  std::string algorithm;
  double median_us = 0;
  double predicted_us = 0;
};

/// What "auto" did with one case, and what each algorithm would have done.
struct ChoiceRow {
  AllReduceCase what;
  ChoiceCandidate chosen;  ///< "auto" itself.
  std::vector<ChoiceCandidate> forced = {};
  std::size_t best = 0;  ///< Index in `forced`.
  /// The time of "auto" relative to the best one; 1.1 is 10 % slower.
  double ratio = 0;
};

/// Measures "auto" beside every forced algorithm, all of one case in turns. `runtimes` are those
/// of "auto" and then of `algorithms`, in this order. Collective; rows are equal on all ranks.
/// Returns whether all sums were right.
bool measure_choice(const std::vector<Runtime*>& runtimes,
                    const std::vector<std::string>& algorithms, const AllReduceOptions& options,
                    const std::function<void(const ChoiceRow&)>& report);

/// How many ranks each node has. Collective.
ProcessGrid grid_of(Runtime& runtime);

}  // namespace kolo::bench
