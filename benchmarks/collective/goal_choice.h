#pragma once

#include <string>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "runtime/api/kolo.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo::bench {

/// The algorithms that a runtime has for collectives in host memory: a case has a goal. Threads:
/// immutable; any.
class GoalChoice {
 public:
  /// Collective.
  explicit GoalChoice(Runtime& runtime);

  /// The names of all that serve the case and that a price may choose.
  std::vector<std::string> algorithms(const CollectiveCase& what) const;
  /// The one that the runtime of these options takes: the one they name, if it holds the case.
  std::string taken(const CollectiveCase& what, const Options& options) const;
  /// Microseconds, by the costs that the runtime goes by.
  double predict_us(const std::string& algorithm, const CollectiveCase& what) const;

 private:
  ProcessGrid grid_;
  LinkCosts costs_;
};

/// Number of ranks of each node. Collective.
ProcessGrid grid_of(Runtime& runtime);

}  // namespace kolo::bench
