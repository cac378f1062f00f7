#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "comm/algorithms/algorithm.h"

namespace kolo {

/// The data that nodes exchange, as blocks of elements in the staging memory of one rank per node
/// (its head), which sends and receives for the node. This takes few messages, which suits small
/// collectives.
///
/// A block is a sequence of items: a part, or the node's contribution to the sum of a part.
/// Algorithms move blocks between heads; this class fills blocks from the ranks of a node and
/// delivers received blocks to them.
///
///   contributors' memory -> own staging memory -> blocks of the head ==> another head's blocks
///   another head's blocks -> memory of this node's receivers, which sum where required
///
/// All ranks call `reserve`, `fill` and `deliver`; only heads call the other functions.
/// Threads: one. Cost: time grows with the number of parts, memory with the parts that this node
/// sends or receives; for an all-to-all in unequal parts, memory grows with nodes^2.
class LeaderBuffers {
 public:
  /// Before: `spec` is a collective (not kOther). The root, if there is one, is a head.
  LeaderBuffers(ScheduleBuilder& builder, const CollectiveSpec& spec, const ProcessGrid& grid);

  int nodes() const { return grid_.num_nodes(); }
  int node() const { return node_; }
  int head(int node) const;
  bool is_head() const { return head(node_) == builder_.rank(); }
  /// Elements of the block from `from` to `to`. In a rooted collective, the root is one of the two.
  std::size_t count(int from, int to) const;

  /// Reserves `count` elements for blocks. All ranks pass the same count.
  void reserve(std::size_t count);
  /// A range of this node's blocks, in the head's memory.
  Range at(std::size_t offset, std::size_t count) const;

  /// Copies this node's data for each node in `targets` to the head. Each map value is the offset
  /// of that node's block.
  void fill(const std::map<int, std::size_t>& targets);
  /// Delivers received blocks to the receivers of this node. Each map value is the offset of the
  /// block that came from that node.
  void deliver(const std::map<int, std::size_t>& sources);

 private:
  /// A part, or one node's or rank's contributions to it.
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
  // Elements of parts that are not summed, by node of their only contributor; and elements of parts
  // with one receiver, by node of that receiver.
  std::vector<std::size_t> given_, got_;
  std::vector<std::size_t> pairs_;                          // by pair of nodes, for an all-to-all
                                                            // in unequal parts
  std::map<std::pair<int, int>, std::vector<Item>> items_;  // of this node's blocks
  std::vector<std::size_t> contributed_;                    // elements, by rank; 0 for a head
  std::size_t most_contributed_ = 0;
  Range memory_;
};

}  // namespace kolo
