#pragma once

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

}  // namespace kolo
