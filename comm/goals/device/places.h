#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/collective/chunking.h"
#include "comm/goals/device/rooted_route.h"
#include "comm/schedule/goal.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// Whether contributions are packed into a bucket on the device, and results unpacked from it.
inline bool is_packed(const BucketLayout& layout) { return layout.placement == Placement::kStaged; }

/// Where a rank's contribution to these elements is, and where its result goes.
inline Range input(const ScheduleBuilder& builder, const Extent& extent) {
  return is_packed(builder.layout()) ? builder.bucket(extent.offset, extent.count)
                                     : builder.input(extent.offset, extent.count);
}
inline Range home(const ScheduleBuilder& builder, const Extent& extent) {
  return is_packed(builder.layout()) ? builder.bucket(extent.offset, extent.count)
                                     : builder.home(extent.offset, extent.count);
}

/// The ranks of one place in their nodes, each of which passes between nodes what is of this place,
/// and the parts of a goal as they see them. Nodes have equally many ranks.
///
/// Threads: any. `goal` and `grid` outlive it.
class Places {
 public:
  Places(const Goal& goal, const ProcessGrid& grid, int rank)
      : goal_(goal), grid_(grid), rank_(rank), peers_(grid.cross_group(rank)) {}

  std::size_t tensors() const { return goal_.tensors; }
  /// Ranks of each node.
  std::size_t size() const { return ranks(node()).size(); }
  int rank() const { return rank_; }
  /// This rank's node.
  int node() const { return grid_.node(rank_); }
  std::size_t nodes() const { return peers_.size(); }
  bool is_at_root() const { return grid_.node(goal_.root) == node(); }
  std::size_t place() const { return place_of(rank_); }
  std::size_t place_of(int rank) const { return static_cast<std::size_t>(grid_.local_rank(rank)); }
  const std::vector<int>& ranks(int node) const { return grid_.ranks_of_node(node); }
  /// The rank of this place in another node, and in the root's.
  int peer(int node) const { return peers_[static_cast<std::size_t>(node)]; }
  int peer_at_root() const { return peer(grid_.node(goal_.root)); }

  /// All nodes in the order in which this one sends to them, itself last; and in that in which it
  /// receives from them, itself first. What nodes send in a step, they receive in the same.
  std::vector<int> receivers() const { return turned(1, 1); }
  std::vector<int> senders() const { return turned(0, static_cast<int>(nodes()) - 1); }

  /// This node's edges in a tree whose root is that of the goal's root.
  TreeEdges edges(TreeShape shape) const {
    const int nodes = grid_.num_nodes(), root = grid_.node(goal_.root);
    TreeEdges edges = edges_of(shape, (node() + nodes - root) % nodes, nodes);
    if (edges.above) *edges.above = (*edges.above + root) % nodes;
    for (int& below : edges.below) below = (below + root) % nodes;
    return edges;
  }

  /// The part that `rank` gives or gets.
  const Extent& part(std::size_t tensor, int rank) const {
    return goal_.parts_of(tensor)[static_cast<std::size_t>(rank)].extent;
  }
  /// Of an all-to-all: what one rank has for another, for the ranks of a node, for all.
  const Extent& part_of_pair(std::size_t tensor, int from, int to) const {
    const auto ranks = static_cast<std::size_t>(grid_.world_size());
    const std::size_t index = static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to);
    return goal_.parts_of(tensor)[index].extent;
  }
  std::vector<Extent> parts_for(std::size_t tensor, int from, int node) const {
    std::vector<Extent> all;
    for (const int to : ranks(node)) all.push_back(part_of_pair(tensor, from, to));
    return all;
  }
  Extent contribution(std::size_t tensor) const {
    const Extent& first = part_of_pair(tensor, rank_, 0);
    const Extent& last = part_of_pair(tensor, rank_, grid_.world_size() - 1);
    return {first.offset, last.end() - first.offset};
  }
  /// A share for each place of a piece, out of so many, of the only part. All are equal where the
  /// piece is not at its end.
  std::vector<Extent> shares(std::size_t tensor, std::size_t piece, std::size_t pieces,
                             DType dtype) const {
    const Extent whole = goal_.parts_of(tensor).front().extent;
    const std::size_t unit = size() * (kWireAlignment / size_of(dtype));
    const std::size_t units = (whole.count + unit - 1) / unit;
    const auto begin_of = [&](std::size_t index) {
      return std::min(units * index / pieces * unit, whole.count);
    };
    const std::size_t begin = begin_of(piece);
    const Extent extent{whole.offset + begin, begin_of(piece + 1) - begin};
    std::vector<Extent> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back(part_of(extent, size(), i, dtype));
    return all;
  }

 private:
  std::vector<int> turned(int first, int stride) const {
    std::vector<int> all;
    for (int step = 0; step < grid_.num_nodes(); ++step) {
      all.push_back((node() + first + step * stride) % grid_.num_nodes());
    }
    return all;
  }

  const Goal& goal_;
  const ProcessGrid& grid_;
  int rank_;
  std::vector<int> peers_;
};

}  // namespace kolo
