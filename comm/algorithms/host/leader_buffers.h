#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "comm/algorithms/algorithm.h"

namespace kolo {

/// The blocks of data that nodes exchange, in the staging memory of one rank per node (the head).
/// The head sends and receives for all ranks of its node. This takes few messages, which suits
/// small collectives.
///
/// A block is a sequence of items; an item is a part, or the node's contribution to the sum of a
/// part. Algorithms move blocks between heads. This class copies the node's data into blocks, and
/// received blocks to the node's ranks.
///
///   contributors' memory -> their staging memory -> the head's blocks ==> another head's blocks
///   received blocks -> memory of this node's receivers, which sum where required
///
/// All ranks call `reserve` first. Then all ranks of a node, or none of them, call `fill`, and
/// likewise `deliver`. Threads: one. Cost: time grows with the number of parts, memory with the
/// parts that this node sends or receives; for an all-to-all in unequal parts, memory grows with
/// nodes^2.
class LeaderBuffers {
 public:
  /// Before: the kind of `spec` is not kOther. A root is the head of its node.
  LeaderBuffers(ScheduleBuilder& builder, const CollectiveSpec& spec, const ProcessGrid& grid);

  int nodes() const { return grid_.num_nodes(); }
  int node() const { return node_; }
  int head(int node) const;
  bool is_head() const { return head(node_) == builder_.rank(); }
  /// Elements of the block that node `from` sends to node `to`. In a rooted collective, one of the
  /// two must be the root's node.
  std::size_t count(int from, int to) const;

  /// Reserves staging memory for blocks of `count` elements in total, equal on all ranks.
  void reserve(std::size_t count);
  /// A range of the reserved elements, in the memory of this node's head.
  Range at(std::size_t offset, std::size_t count) const;

  /// Appends steps that copy this node's data into the head's blocks. `targets` maps each receiving
  /// node to the offset of its block.
  void fill(const std::map<int, std::size_t>& targets);
  /// Appends steps that copy or sum received blocks into the memory of this node's receivers.
  /// `sources` maps each sending node to the offset of its block.
  void deliver(const std::map<int, std::size_t>& sources);

 private:
  /// A part, or the contribution of one node or one rank to it.
  struct Item {
    std::size_t part = 0;
    std::vector<int> contributors;
  };
  struct Transfer {
    std::size_t target = 0, source = 0, count = 0;
  };

  void count(const CollectiveSpec::Part& part);
  void append_items(std::size_t index, const CollectiveSpec::Part& part);
  std::span<const Item> items(int from, int to) const;
  Extent extent(const Item& item) const { return spec_.part(item.part).extent; }
  std::vector<int> others() const;
  Range contributions(int rank) const;
  void take(const std::map<int, std::size_t>& targets);
  void contribute(const std::map<int, std::size_t>& targets);
  void receive(const std::map<int, std::size_t>& sources);
  static void merge_into(std::vector<Transfer>& transfers, const Transfer& next);

  ScheduleBuilder& builder_;
  const CollectiveSpec& spec_;
  const ProcessGrid& grid_;
  int node_;
  bool sums_in_one_place_;
  // `given_`: elements of parts, by node of the first contributor. `got_`: elements of parts, by
  // node of the first receiver.
  std::vector<std::size_t> given_, got_;
  std::vector<std::size_t> pairs_;                          // elements by (from, to) node; only for
                                                            // an all-to-all in unequal parts
  std::map<std::pair<int, int>, std::vector<Item>> items_;  // by (from, to) node
  std::vector<std::size_t> contributed_;                    // elements by rank; 0 for heads
  std::size_t most_contributed_ = 0;
  Range memory_;
};

}  // namespace kolo
