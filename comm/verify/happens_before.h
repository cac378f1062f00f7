#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"

namespace kolo {

/// The order of events: which events precede others, whatever the timing. Threads: one. Source:
/// Lamport, CACM 1978.
class HappensBefore {
 public:
  using Node = std::size_t;

  explicit HappensBefore(std::size_t nodes) : before_(nodes) {}

  Node add_node();
  void add_edge(Node earlier, Node later) { before_[later].push_back(earlier); }
  /// Returns the direct predecessors of a node.
  const std::vector<Node>& before(Node node) const { return before_[node]; }

  /// Sorts the nodes topologically. Returns a node of a cycle if no such order exists.
  std::optional<Node> sort();
  /// Returns the order that the last `sort` found.
  const std::vector<Node>& order() const { return order_; }

  /// Prepares `precedes` for all edges added so far. Before: `sort` has found no cycle. Cost: one
  /// bit of memory per pair of nodes.
  void close();
  bool precedes(Node earlier, Node later) const;
  /// Whether any of the nodes [first, last) precedes the node `later`.
  bool any_precedes(Node first, Node last, Node later) const;

 private:
  std::vector<std::vector<Node>> before_;
  std::vector<Node> order_;
  std::size_t words_ = 0;                 // per row of ancestors_
  std::vector<std::uint64_t> ancestors_;  // by node: one bit for every node that precedes it
};

/// The steps of all ranks. Nodes number them, from rank 0's first step to the last rank's last
/// step. Threads: immutable; any.
class AllSteps {
 public:
  using Node = HappensBefore::Node;

  /// `schedules[r]` is the schedule of rank r. The schedules must outlive this object.
  explicit AllSteps(std::span<const Schedule> schedules);

  std::size_t size() const { return first_.back(); }
  /// Returns the first step of `rank`; `size()` if `rank` is the number of ranks.
  Node first(std::size_t rank) const { return first_[rank]; }
  std::size_t rank_of(Node node) const;
  const Step& operator[](Node node) const;
  std::span<const Schedule> schedules() const { return schedules_; }

  /// Returns a text such as "rank 1 step 3 (send)".
  std::string text(Node node) const;

 private:
  std::span<const Schedule> schedules_;
  std::vector<Node> first_;
};

}  // namespace kolo
