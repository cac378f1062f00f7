#include <algorithm>
#include <map>
#include <vector>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/host/blocks.h"
#include "comm/algorithms/host/goal_price.h"
#include "comm/algorithms/host/slice_plan.h"
#include "comm/algorithms/host/sums.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

// A binomial tree of nodes, numbered from the root's node on, whose edges carry the blocks of all
// nodes below them: log2 n messages at the root instead of n - 1.
//
//   gather, 6 nodes      1->0 3->2 5->4 | 2 and 3: 2->0 | 4 and 5: 4->0
//   scatter              the reverse
//
// Blocks gathered for a sum are added up at the root, in node order.
class Tree {
 public:
  Tree(ScheduleBuilder& builder, const Goal& goal, const ProcessGrid& grid)
      : builder_(builder),
        blocks_(builder, goal, grid),
        root_(grid.node(goal.root)),
        place_((blocks_.node() - root_ + blocks_.nodes()) % blocks_.nodes()) {
    begin_.push_back(0);
    for (int place = 0; place < blocks_.nodes(); ++place) {
      const int node = node_at(place);
      const std::size_t count =
          goal.kind == GoalKind::kScatter ? blocks_.count(root_, node) : blocks_.count(node, root_);
      begin_.push_back(begin_.back() + count);
    }
    blocks_.reserve(begin_.back());
  }

  void gather() {
    blocks_.fill({{root_, begin(place_)}});
    int distance = 1;
    for (; is_above(distance); distance *= 2) receive_from(place_ + distance, distance);
    if (place_ != 0 && blocks_.is_head()) {
      builder_.send(head_at(place_ - distance), behind(place_, distance));
    }
    if (place_ != 0) return;
    std::map<int, std::size_t> places;
    for (int place = 0; place < blocks_.nodes(); ++place) places[node_at(place)] = begin(place);
    blocks_.deliver(places);
  }

  void scatter() {
    if (place_ == 0) {
      std::map<int, std::size_t> places;
      for (int place = 0; place < blocks_.nodes(); ++place) places[node_at(place)] = begin(place);
      blocks_.fill(places);
    }
    int distance = 1;
    while (is_above(distance)) distance *= 2;
    if (place_ != 0 && blocks_.is_head()) {
      builder_.recv(head_at(place_ - distance), behind(place_, distance));
    }
    while ((distance /= 2) >= 1) {
      if (place_ + distance < blocks_.nodes() && blocks_.is_head()) {
        builder_.send(head_at(place_ + distance), behind(place_ + distance, distance));
      }
    }
    blocks_.deliver({{root_, begin(place_)}});
  }

 private:
  int node_at(int place) const { return (root_ + place) % blocks_.nodes(); }
  int head_at(int place) const { return blocks_.head(node_at(place)); }
  std::size_t begin(int place) const { return begin_[static_cast<std::size_t>(place)]; }
  /// Whether this node has an edge of that length to a lower node, if there are that many nodes.
  bool is_above(int distance) const {
    return distance < blocks_.nodes() && (place_ & distance) == 0;
  }
  /// The blocks of the node at `place` and of the nodes below it along edges shorter than
  /// `distance`.
  Range behind(int place, int distance) const {
    const int end = std::min(place + distance, blocks_.nodes());
    return blocks_.at(begin(place), begin(end) - begin(place));
  }
  void receive_from(int place, int distance) {
    if (place >= blocks_.nodes() || !blocks_.is_head()) return;
    builder_.recv(head_at(place), behind(place, distance));
  }

  ScheduleBuilder& builder_;
  Blocks blocks_;
  int root_;
  int place_;
  std::vector<std::size_t> begin_;  // of each block, starting with the root's
};

void append_broadcast_in_pieces(ScheduleBuilder& builder, const CompileContext& context) {
  for (const Extent& piece : host_pieces(context.layout, context.grid, context.options)) {
    builder.next_chunk();
    append_broadcast(builder, piece, context.goal.root, context.grid);
  }
}

bool serves(const CompileContext& context) {
  const auto& [goal, layout, grid, options] = context;
  if (goal.kind == GoalKind::kBroadcast) {
    // On one node there is no tree: data that fits in slots uses them.
    const bool is_for_slots = grid.num_nodes() == 1 && layout.is_in_tensors(MemoryKind::kHost);
    return !layout.is_on_device() && !is_for_slots;
  }
  const bool has_blocks = goal.kind == GoalKind::kGather || goal.kind == GoalKind::kScatter ||
                          goal.kind == GoalKind::kReduce;
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_blocks;
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  const Goal& goal = context.goal;
  if (goal.kind == GoalKind::kBroadcast) {
    append_broadcast_in_pieces(builder, context);
  } else if (goal.kind == GoalKind::kScatter) {
    Tree(builder, goal, context.grid).scatter();
  } else {
    Tree(builder, goal, context.grid).gather();
  }
}

/// Time of the messages along the edges of a tree, length by length.
Passage hops(const HostLinks& links) {
  const int nodes = links.grid().num_nodes();
  Passage all;
  for (int distance = 1; distance < nodes; distance *= 2) {
    const int edges = (nodes - distance + 2 * distance - 1) / (2 * distance);
    all += links.message_pair(edges);
  }
  return all;
}

double predict_broadcast_us(const HostLinks& links, const GoalSize& size,
                            const CompileOptions& options) {
  const GoalPrice price(links, size);
  const double chunk = std::min(
      size.bytes, static_cast<double>(host_chunk_bytes(links.grid(), MemoryKind::kHost, options)));
  const double rounds = chunk > 0 ? size.bytes / chunk : 1;
  Passage one = hops(links);
  one.link_us = one.one_way_us = price.doublings() * links.link_us(chunk);
  one.processor_us += price.copies_us() / rounds;
  one.wait_us += price.handed_on_us();
  return price.rounds_us(one, rounds);
}

double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  if (size.kind == GoalKind::kBroadcast) return predict_broadcast_us(links, size, options);
  const GoalPrice price(links, size);
  Passage one = hops(links);
  one.link_us = one.one_way_us = price.link_us(price.direct_bytes(), false);
  const double blocks = size.kind == GoalKind::kReduce ? price.nodes() : 1;
  return price.blocks_us(one, blocks * size.bytes, options);
}

constinit const CollectiveAlgorithm kTree(
    {.name = "tree", .serves = serves, .append = append, .predict_us = predict_us});

}  // namespace

constinit const Algorithm& algorithms::tree = kTree;
}  // namespace kolo
