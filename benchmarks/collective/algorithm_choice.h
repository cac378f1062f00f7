#pragma once

#include <string>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "runtime/api/kolo.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo::bench {

/// The algorithms that a runtime has for a case in host memory. Threads: immutable; any.
class AlgorithmChoice {
 public:
  /// Collective.
  explicit AlgorithmChoice(Runtime& runtime);

  /// The names of all that serve the case and that a price may choose.
  std::vector<std::string> algorithms(const CollectiveCase& what) const;
  /// The one that the runtime of these options takes for a collective other than all-reduce: the
  /// one they name, if it holds the case.
  std::string taken(const CollectiveCase& what, const Options& options) const;
  /// Microseconds, by the costs that the runtime goes by.
  double predict_us(const std::string& algorithm, const CollectiveCase& what) const;

 private:
  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo::bench
