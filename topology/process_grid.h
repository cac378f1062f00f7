#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// Ranks, the nodes they run on, and their places within a node. Nodes are numbered by their lowest
/// rank, local ranks by rank. Nodes may hold different numbers of ranks.
///
///   ranks  0 1 2 | 3 4        node 0 has local size 3, node 1 has 2
///   local  0 1 2 | 0 1        cross group of local rank 0 is {0, 3}, of local rank 2 is {2}
///
/// Threads: immutable after construction; any.
class ProcessGrid {
 public:
  /// Takes the node id that each rank reported, by rank. Errors: std::invalid_argument if empty.
  explicit ProcessGrid(const std::vector<std::string>& node_id_of_rank);

  /// Nodes of the given sizes, filled with consecutive ranks.
  static ProcessGrid with_node_sizes(const std::vector<int>& sizes);

  int world_size() const;
  int num_nodes() const;
  int node(int rank) const;
  int local_rank(int rank) const;
  int local_size(int rank) const;
  /// Ranks of a node in ascending order; the first is the node's leader.
  const std::vector<int>& ranks_of_node(int node) const;
  int leader(int node) const;
  bool same_node(int a, int b) const;
  /// The number of ranks of the largest node, and of the smallest.
  int largest_node() const;
  int smallest_node() const;
  /// Whether all nodes hold the same number of ranks.
  bool is_even() const;
  /// Ranks with the same local rank as `rank`, by node; nodes with too few ranks are left out.
  std::vector<int> cross_group(int rank) const;
  int cross_rank(int rank) const;
  int cross_size(int rank) const;
  const std::string& node_id(int node) const;

 private:
  std::vector<int> node_of_rank_;
  std::vector<int> local_of_rank_;
  std::vector<std::vector<int>> ranks_of_node_;
  std::vector<std::string> node_ids_;
};

}  // namespace kolo
