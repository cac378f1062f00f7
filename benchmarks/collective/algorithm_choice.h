#pragma once

#include <string>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "comm/algorithms/tuning.h"
#include "runtime/api/kolo.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo::bench {

/// Finds the algorithms of a runtime for cases in host memory. Threads: any; immutable.
class AlgorithmChoice {
 public:
  /// All ranks must construct it together, because they exchange the sizes of their nodes.
  explicit AlgorithmChoice(Runtime& runtime);

  /// Returns the names of all algorithms that support the case and that "auto" may choose.
  std::vector<std::string> algorithms(const CollectiveCase& what) const;
  /// Returns the algorithm that a runtime with these options uses for a call: the one that the
  /// options name if it supports the case, otherwise the tuned or the cheapest one.
  std::string taken(const CollectiveCase& what, const Options& options) const;
  /// Returns the time that the cost model predicts from the runtime's link costs, in microseconds.
  double predict_us(const std::string& algorithm, const CollectiveCase& what) const;

 private:
  ProcessGrid grid_;
  LinkCosts costs_;
  Tuning tuning_;
};

}  // namespace kolo::bench
