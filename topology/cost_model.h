#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "topology/process_grid.h"

namespace kolo {

/// Cost of one kind of link in the alpha-beta model: a message of b bytes takes
/// latency_us + b / bytes_per_us.
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 1;
};

/// Costs of the links of a job; the defaults stand for a shared-memory node and a 10 Gbit/s
/// network.
struct LinkCosts {
  LinkCost memory{.latency_us = 0.5, .bytes_per_us = 8000};    ///< Between ranks of one node.
  LinkCost network{.latency_us = 15.0, .bytes_per_us = 1200};  ///< Between nodes, one node's link.
};

/// Predicted times of all-reduce algorithms.
///
/// Units:   bytes of one rank's buffer; microseconds until the slowest rank is done.
/// Threads: pure; any.
/// Cost:    O(ranks log ranks) per prediction.
/// Source:  Thakur, Rabenseifner and Gropp, IJHPCA 2005, with one shared link per node. Kernels are
///          free and stages follow each other, so chunked schedules do somewhat better.
class CostModel {
 public:
  CostModel(ProcessGrid grid, LinkCosts costs) : grid_(std::move(grid)), costs_(costs) {}

  double ring_us(std::size_t bytes) const;
  double direct_us(std::size_t bytes) const;
  double halving_doubling_us(std::size_t bytes) const;
  double tree_us(std::size_t bytes) const;
  /// Local direct reduce-scatter, `cross` algorithm on each rank's part over all nodes, local
  /// all-gather. Errors: std::invalid_argument unless `cross` is a flat name.
  double hierarchical_us(std::size_t bytes, const std::string& cross) const;

  /// Names that `choose` considers, preferred first among equals: the flat ones, then
  /// "hierarchical:direct,CROSS" for each.
  static std::vector<std::string> algorithms();
  /// Whether each element is summed at one place in rank order per level.
  static bool is_reproducible(const std::string& algorithm);

  /// By name: "ring", "direct", "halving_doubling", "tree", "hierarchical" (best cross algorithm)
  /// or "hierarchical:direct,CROSS". Errors: std::invalid_argument for an unknown name.
  double predict_us(const std::string& algorithm, std::size_t bytes) const;

  /// The algorithm with the lowest prediction. `reproducible` admits only those for which
  /// `is_reproducible` holds (direct, hierarchical:direct,direct), as 16-bit buckets need.
  std::string choose(std::size_t bytes, bool reproducible) const;

  const LinkCosts& costs() const { return costs_; }

 private:
  ProcessGrid grid_;
  LinkCosts costs_;
};

}  // namespace kolo
