#pragma once

#include <vector>

#include "topology/link_costs.h"

namespace kolo {

/// The time of moving bytes inside a node while it works on a bucket of some size.
///
/// Rates follow the node's working set through the sizes that were measured.
/// Threads: immutable; any.
class NodeMemory {
 public:
  NodeMemory(const MemoryCost& cost, double working_set_bytes);

  /// Bytes read or written, all ranks of the node together, in lines the reader wrote itself.
  double own_us(double bytes) const { return bytes * own_us_per_byte_; }
  /// Bytes in lines that another rank wrote last: never faster than in a rank's own lines.
  double shared_us(double bytes) const { return bytes * shared_us_per_byte_; }
  /// Bytes of contributions that one rank packs for another and that one sums.
  double packed_us(double bytes) const { return bytes * packed_us_per_byte_; }

 private:
  double own_us_per_byte_;
  double shared_us_per_byte_;
  double packed_us_per_byte_;
};

/// The share of all sums that each of `num_nodes` nodes should make, so that `direct` between nodes
/// is fastest where their links differ.
///
/// A node sends its contribution to what others sum and its own sums to n - 1 others, and receives
/// as much. With a share w its link carries 1 + (n-2) w buckets in each direction, and never
/// less than one. So faster nodes make more of the sums, and one that is slow enough makes none:
///
///   rates            2    1    2
///   equal shares    4/3  4/3  4/3  buckets, 4/3 of a bucket's time on the slow link
///   1/2, 0, 1/2     3/2   1   3/2  buckets, 1 such time
///
/// By node, adding up to 1. Empty if shares are to be equal: nothing is known of the nodes
/// (`node_rates`), or there are two of them, whose links carry one bucket whatever the shares. A
/// node of unknown rate counts as the slowest.
/// Threads: pure; any.
std::vector<double> node_shares(const LinkCosts& costs, int num_nodes);

/// Microseconds that the busiest link needs for each byte of a bucket. Before: `shares` are not
/// empty and come from `node_shares` of these costs.
double link_us_per_byte(const LinkCosts& costs, const std::vector<double>& shares);

}  // namespace kolo
