#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"

namespace kolo {

/// Which events precede which others, whatever the timing. Threads: one.
/// Source: Lamport, CACM 1978.
class HappensBefore {
 public:
  using Node = std::size_t;

  explicit HappensBefore(std::size_t nodes) : before_(nodes) {}

  Node add_node();
  void add_edge(Node earlier, Node later) { before_[later].push_back(earlier); }
  /// Direct predecessors.
  const std::vector<Node>& before(Node node) const { return before_[node]; }

  /// Topologically sorts the nodes. Returns a node of a cycle if there is no such order.
  std::optional<Node> sort();
  /// The order found by the last `sort`.
  const std::vector<Node>& order() const { return order_; }

  /// Prepares `precedes` for all edges added so far. Before: a `sort` found no cycle. Cost: the
  /// square of the number of nodes, in bits.
  void close();
  bool precedes(Node earlier, Node later) const;
  /// Whether any of the nodes [first, last) precedes `later`.
  bool any_precedes(Node first, Node last, Node later) const;

 private:
  std::vector<std::vector<Node>> before_;
  std::vector<Node> order_;
  std::size_t words_ = 0;                 // per row of ancestors_
  std::vector<std::uint64_t> ancestors_;  // one bit for every node that ends before this one starts
};

/// The steps of all ranks, numbered from rank 0's first to the last rank's last.
/// Threads: immutable; any.
class AllSteps {
 public:
  using Node = HappensBefore::Node;

  /// `schedules[r]` belongs to rank r; the schedules outlive this object.
  explicit AllSteps(std::span<const Schedule> schedules);

  std::size_t size() const { return first_.back(); }
  /// The first step of `rank`; for the number of ranks: `size()`.
  Node first(std::size_t rank) const { return first_[rank]; }
  std::size_t rank_of(Node node) const;
  const Step& operator[](Node node) const;
  std::span<const Schedule> schedules() const { return schedules_; }

  /// "rank 1 step 3 (send)".
  std::string text(Node node) const;

 private:
  std::span<const Schedule> schedules_;
  std::vector<Node> first_;
};

}  // namespace kolo
