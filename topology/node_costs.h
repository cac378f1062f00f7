#pragma once

#include <vector>

#include "topology/link_costs.h"

namespace kolo {

/// The time to move bytes inside a node, for a bucket with a given working set.
///
/// Rates depend on the node's working set; between the measured sizes they are interpolated.
/// Threads: immutable; any.
class NodeMemory {
 public:
  NodeMemory(const MemoryCost& cost, double working_set_bytes);

  /// Returns the time to read or write `bytes`, by all ranks of the node together, in cache lines
  /// that the reader wrote itself.
  double own_us(double bytes) const { return bytes * own_us_per_byte_; }
  /// As `own_us`, for cache lines that another rank wrote last; never faster than `own_us`.
  double shared_us(double bytes) const { return bytes * shared_us_per_byte_; }
  /// Returns the time for `bytes` of contributions that one rank packs and another one sums.
  double packed_us(double bytes) const { return bytes * packed_us_per_byte_; }

 private:
  double own_us_per_byte_;
  double shared_us_per_byte_;
  double packed_us_per_byte_;
};

/// Returns the share of all sums that each of `num_nodes` nodes should compute, so that `direct`
/// between nodes is fastest if their links differ.
///
/// A node sends its contributions to the sums of other nodes, and its own sums to n - 1 others, and
/// receives as much. With a share w its link carries 1 + (n-2) w buckets in each direction, at
/// least one. Therefore faster nodes compute more of the sums, and a very slow node computes none:
///
///   rates            2    1    2
///   equal shares    4/3  4/3  4/3  buckets, 4/3 of a bucket's time on the slow link
///   1/2, 0, 1/2     3/2   1   3/2  buckets, one bucket's time on the slow link
///
/// The shares add up to 1. The result is empty if shares should be equal: the nodes' rates are
/// unknown (`node_rates`), or there are two nodes, whose links carry one bucket whatever the
/// shares. A node of unknown rate counts as the slowest.
/// Threads: pure; any.
std::vector<double> node_shares(const LinkCosts& costs, int num_nodes);

/// Returns the microseconds per byte of a bucket on the busiest link. Before: `shares` is not empty
/// and was returned by `node_shares` for these costs.
double link_us_per_byte(const LinkCosts& costs, const std::vector<double>& shares);

}  // namespace kolo
