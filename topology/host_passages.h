#pragma once

#include <cstddef>
#include <string_view>

#include "topology/link_costs.h"
#include "topology/passage.h"
#include "topology/process_grid.h"

namespace kolo {

/// A bucket is cut into parts at multiples of so many bytes: a small one has fewer owners of parts
/// than ranks.
inline constexpr std::size_t kLeastPartBytes = 64;

/// Where the tensors of a host bucket live.
enum class Packing {
  kNone,  ///< In the bucket itself.
  kUser,  ///< Elsewhere, in the bucket's dtype.
  kCast,  ///< Elsewhere, in another dtype: every element is converted on its way.
};

/// What moving bytes inside a node takes while a bucket of some size is worked on.
///
/// Rates follow the node's working set through the sizes that were measured.
class NodeMemory {
 public:
  NodeMemory(const MemoryCost& cost, double working_set_bytes);

  /// Bytes read or written, all ranks of the node together, in lines the reader wrote itself.
  double own_us(double bytes) const { return bytes * own_us_per_byte_; }
  /// The same in lines that another rank wrote last, never faster than one's own.
  double shared_us(double bytes) const { return bytes * shared_us_per_byte_; }

 private:
  double own_us_per_byte_;
  double shared_us_per_byte_;
};

/// What one chunk of a host bucket goes through, by algorithm.
///
/// Ranks of a node have cores of their own, or the node's rates were measured without; between
/// nodes, the ranks of a node share its link. Nodes are as fast as the busiest one.
///
/// Units:   bytes of one rank's chunk.
/// Threads: pure; any. `grid` and `costs` outlive it.
class HostPassages {
 public:
  /// So many `groups` like `grid` do the same at once, each with its part of the bucket.
  HostPassages(const ProcessGrid& grid, const LinkCosts& costs, double bucket_bytes,
               double groups = 1);

  // Flat: between all ranks. On a single node `direct` and `flat` use mapped memory.
  Passage flat(double bytes) const;
  /// Between nodes, tensors are packed beforehand.
  Passage direct(double bytes) const;
  Passage ring(double bytes) const;
  Passage halving_doubling(double bytes) const;
  Passage tree(double bytes) const;

  /// The halves inside each node, before and after what happens between nodes.
  Passage local_halves(double bytes) const;
  /// What tensors outside the bucket add to `algorithm`.
  Passage packing(double bytes, Packing packing, std::string_view algorithm) const;

 private:
  struct Round;

  /// Steps of one rank that signals and awaits every peer of its node once per trip.
  double flag_steps_us(double local, double trips) const;
  /// Messages between nodes that are in flight at once, of which a processor handles so many one
  /// after the other. Their bytes come on top.
  Passage messages(double in_a_row) const;
  /// What a link needs for so many bytes in one direction.
  double link_us(double bytes) const;
  /// Of so many ranks of a group, those that own a part of the bucket.
  double owners(double of) const;
  Passage direct_in_memory(double bytes) const;
  Passage flat_in_memory(double bytes) const;
  /// All ranks of one node combine `sources` operands of `bytes` each.
  double combine_us(double ranks, double sources, double bytes) const;

  const ProcessGrid& grid_;
  const LinkCosts& costs_;
  double part_bytes_;  // of the bucket, one group's
  double largest_node_;
  NodeMemory memory_;
};

}  // namespace kolo
