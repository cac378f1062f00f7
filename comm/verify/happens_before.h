#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"

namespace kolo {

/// Which events come before which others, whatever the timing. Threads: one.
/// Source: Lamport, CACM 1978.
class HappensBefore {
 public:
  using Node = std::size_t;

  explicit HappensBefore(std::size_t nodes) : before_(nodes) {}

  Node add_node();
  void add_edge(Node earlier, Node later) { before_[later].push_back(earlier); }
  /// Direct predecessors.
  const std::vector<Node>& before(Node node) const { return before_[node]; }

  /// Puts all nodes into an order that respects the edges; returns a node that waits for itself if
  /// there is none.
  std::optional<Node> sort();
  /// The order that the last `sort` found.
  const std::vector<Node>& order() const { return order_; }

  /// Makes `precedes` know everything up to now; after a `sort` that found no circle.
  /// Cost: the square of the number of nodes, in bits.
  void close();
  bool precedes(Node earlier, Node later) const;
  /// Whether any of the nodes [first, last) precedes `later`.
  bool any_precedes(Node first, Node last, Node later) const;

 private:
  std::vector<std::vector<Node>> before_;
  std::vector<Node> order_;
  std::size_t words_ = 0;  // of a row of ancestors_
  std::vector<std::uint64_t>
      ancestors_;  // a bit for every node that is over before this one starts
};

/// The steps of all ranks, numbered from rank 0's first to the last rank's last.
/// Threads: immutable; any.
class AllSteps {
 public:
  using Node = HappensBefore::Node;

  /// `schedules[r]` is rank r's; they outlive this.
  explicit AllSteps(std::span<const Schedule> schedules);

  std::size_t size() const { return first_.back(); }
  /// The first step of `rank`; of the number of ranks: `size()`.
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
