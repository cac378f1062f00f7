#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

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

}  // namespace kolo
