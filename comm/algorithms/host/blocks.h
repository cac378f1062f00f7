#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "comm/algorithms/algorithm.h"

namespace kolo {

/// What nodes have for each other, as blocks of elements in the staging memory of one rank per
/// node, its head, which sends and receives for it: few messages, for small collectives.
///
/// A block holds items side by side: a part, or what the node contributes to its sum. Algorithms
/// move blocks between heads; this class fills them from the ranks of a node and hands them out.
///
///   contributors' memory -> own staging memory -> blocks of the head ==> another head's blocks
///   another head's blocks -> its receivers' memory, who sum what is to be summed
///
/// All ranks call `reserve`, `fill` and `deliver`, heads the rest.
/// Threads: one. Cost: time grows with the parts, memory with those that this node gives or gets;
/// of an all-to-all in unequal parts, with nodes^2.
class Blocks {
 public:
  /// Before: `goal` is that of a collective (not kOther). The root, if there is one, is a head.
  Blocks(ScheduleBuilder& builder, const Goal& goal, const ProcessGrid& grid);

  int nodes() const { return grid_.num_nodes(); }
  int node() const { return node_; }
  int head(int node) const;
  bool is_head() const { return head(node_) == builder_.rank(); }
  /// Elements of the block that `from` has for `to`: the root is one of them, if there is one.
  std::size_t count(int from, int to) const;

  /// Takes `count` elements for blocks, which is equal on all ranks.
  void reserve(std::size_t count);
  /// Elements of the head's blocks.
  Range at(std::size_t offset, std::size_t count) const;

  /// Brings what this node has for the nodes of `targets` to its head: the block for a node lies
  /// at its value.
  void fill(const std::map<int, std::size_t>& targets);
  /// Brings what is here to the receivers of this node: the block of a node lies at its value.
  void deliver(const std::map<int, std::size_t>& sources);

 private:
  /// A part, or the contributions to it of one node or rank.
  struct Item {
    std::size_t part = 0;
    std::vector<int> contributors;
  };
  /// Elements that move from one place to another.
  struct Transfer {
    std::size_t target = 0, source = 0, count = 0;
  };

  void count(const Goal::Part& part);
  void append_items(std::size_t index, const Goal::Part& part);
  std::span<const Item> items(int from, int to) const;
  Extent extent(const Item& item) const { return goal_.part(item.part).extent; }
  std::vector<int> others() const;
  Range contributions(int rank) const;
  void take(const std::map<int, std::size_t>& targets);
  void contribute(const std::map<int, std::size_t>& targets);
  void receive(const std::map<int, std::size_t>& sources);
  static void merge_into(std::vector<Transfer>& transfers, const Transfer& next);

  ScheduleBuilder& builder_;
  const Goal& goal_;
  const ProcessGrid& grid_;
  int node_;
  bool sums_in_one_place_;
  // Elements of the parts that are not summed, by node of the only contributor; of those with one
  // receiver, by its node.
  std::vector<std::size_t> given_, got_;
  std::vector<std::size_t> pairs_;                          // of an all-to-all in unequal parts
  std::map<std::pair<int, int>, std::vector<Item>> items_;  // of this node's blocks
  std::vector<std::size_t> contributed_;                    // elements, by rank; none of a head
  std::size_t most_contributed_ = 0;
  Range memory_;
};

}  // namespace kolo
