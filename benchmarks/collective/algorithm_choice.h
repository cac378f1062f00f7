#pragma once

#include <string>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "runtime/api/kolo.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo::bench {

/// The algorithms of a runtime for a case in host memory. Threads: any; immutable.
class AlgorithmChoice {
 public:
  /// Collective.
  explicit AlgorithmChoice(Runtime& runtime);

  /// The names of all algorithms that serve the case and that a price may choose.
  std::vector<std::string> algorithms(const CollectiveCase& what) const;
  /// The algorithm that a runtime with these options uses for a collective other than all-reduce:
  /// the one that the options name, if it serves the case.
  std::string taken(const CollectiveCase& what, const Options& options) const;
  /// Microseconds, predicted from the runtime's link costs.
  double predict_us(const std::string& algorithm, const CollectiveCase& what) const;

 private:
  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo::bench
