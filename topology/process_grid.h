#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// The ranks of a job, their nodes, and their numbers within a node. Nodes are numbered by their
/// lowest rank, local ranks by rank. Nodes may have different numbers of ranks.
///
///   ranks  0 1 2 | 3 4        node 0 has local size 3, node 1 has 2
///   local  0 1 2 | 0 1        cross group of local rank 0 is {0, 3}, of local rank 2 is {2}
///
/// Threads: immutable after construction; any.
class ProcessGrid {
 public:
  /// Takes the node id of each rank. Errors: std::invalid_argument if it is empty.
  explicit ProcessGrid(const std::vector<std::string>& node_id_of_rank);

  /// Makes nodes of the given sizes, with consecutive ranks.
  static ProcessGrid with_node_sizes(const std::vector<int>& sizes);

  int world_size() const;
  std::vector<int> ranks() const;  ///< Of the job, in ascending order.
  int num_nodes() const;
  int node(int rank) const;
  int local_rank(int rank) const;
  int local_size(int rank) const;
  /// Returns the ranks of a node in ascending order; the first is the node's leader.
  const std::vector<int>& ranks_of_node(int node) const;
  int leader(int node) const;
  bool same_node(int a, int b) const;
  /// Return the number of ranks of the largest and of the smallest node.
  int largest_node() const;
  int smallest_node() const;
  /// Whether all nodes have the same number of ranks.
  bool is_even() const;
  /// Returns the ranks with the same local rank as `rank`, by node; smaller nodes have none.
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
