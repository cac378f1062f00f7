#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "comm/goals/goal_price.h"
#include "comm/goals/sums.h"

namespace kolo {
namespace {

// Between nodes, each rank passes what is of its place in the node, through staging memory; inside
// them the device's own library does the rest. A block has the parts of one node's ranks, which lie
// side by side:
//
//   all-gather       own part -> ranks of this place in other nodes; then for each block
//                    gather_parts among the ranks of the node, each of which has one part of it
//   reduce-scatter   for each block reduce_parts inside the node; then the sum of the part that is
//                    for another node's rank of this place -> that rank, which adds up the nodes'

/// As many sums as a kernel of a device adds up: its `kMostReduceSources`.
constexpr std::size_t kMostNodes = 64;

class Places {
 public:
  Places(const Goal& goal, const ProcessGrid& grid, int rank)
      : goal_(goal), grid_(grid), local_(grid.local_rank(rank)) {}

  const Extent& part(int rank) const { return goal_.parts[static_cast<std::size_t>(rank)].extent; }
  /// The rank of this one's place in another node.
  int peer(int node) const { return grid_.ranks_of_node(node)[static_cast<std::size_t>(local_)]; }
  const std::vector<int>& block(int node) const { return grid_.ranks_of_node(node); }
  bool is_empty(int node) const {
    return std::ranges::all_of(block(node), [&](int rank) { return part(rank).count == 0; });
  }

 private:
  const Goal& goal_;
  const ProcessGrid& grid_;
  int local_;
};

void append_all_gather(ScheduleBuilder& builder, const Goal& goal, const ProcessGrid& grid) {
  const Places places(goal, grid, builder.rank());
  const int own_node = grid.node(builder.rank());
  const Extent& own = places.part(builder.rank());
  for (int node = 0; node < grid.num_nodes(); ++node) {
    if (node != own_node) builder.send(places.peer(node), builder.input(own.offset, own.count));
  }
  for (int step = 0; step < grid.num_nodes(); ++step) {  // What is here goes first.
    const int node = (own_node + step) % grid.num_nodes();
    const Extent& part = places.part(places.peer(node));
    if (node != own_node) builder.recv(places.peer(node), builder.home(part.offset, part.count));
    if (places.is_empty(node)) continue;
    std::vector<Range> block;
    for (const int rank : places.block(node)) {
      block.push_back(builder.home(places.part(rank).offset, places.part(rank).count));
    }
    const Range source = node == own_node ? builder.input(part.offset, part.count)
                                          : builder.home(part.offset, part.count);
    builder.gather_parts(NativeGroup::kNode, {source}, std::move(block));
  }
}

void append_reduce_scatter(ScheduleBuilder& builder, const Goal& goal, const ProcessGrid& grid) {
  const Places places(goal, grid, builder.rank());
  const int own_node = grid.node(builder.rank());
  const Extent& own = places.part(builder.rank());
  std::vector<Range> addends;  // by node
  for (int node = 0; node < grid.num_nodes(); ++node) {
    addends.push_back(builder.scratch(own.count));
  }
  for (int step = 1; step <= grid.num_nodes(); ++step) {  // What stays here goes last.
    const int node = (own_node + step) % grid.num_nodes();
    const int peer = places.peer(node);
    const Range sum = node == own_node ? addends[static_cast<std::size_t>(node)]
                                       : builder.scratch(places.part(peer).count);
    std::vector<Range> block;
    for (const int rank : places.block(node)) {
      block.push_back(builder.input(places.part(rank).offset, places.part(rank).count));
    }
    if (!places.is_empty(node)) {
      builder.reduce_parts(NativeGroup::kNode, {sum}, std::move(block), false);
    }
    if (node != own_node) builder.send(peer, sum);
  }
  for (int node = 0; node < grid.num_nodes(); ++node) {
    if (node != own_node) {
      builder.recv(places.peer(node), addends[static_cast<std::size_t>(node)]);
    }
  }
  builder.reduce(builder.home(own.offset, own.count), addends, true);
}

/// Each node has a place for each rank of the others, and its ranks follow each other.
bool has_blocks(const ProcessGrid& grid) {
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::vector<int>& ranks = grid.ranks_of_node(node);
    if (ranks.back() - ranks.front() != static_cast<int>(ranks.size()) - 1) return false;
  }
  return grid.is_even();
}

// Sums of 16-bit floats would be rounded between the nodes.
bool serves(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid) {
  const bool sums = goal.kind == GoalKind::kReduceScatter && !sums_in_one_place(layout);
  const auto nodes = static_cast<std::size_t>(grid.num_nodes());
  return layout.is_in_tensors(MemoryKind::kDevice) && goal.tensors == 1 && nodes > 1 &&
         nodes <= kMostNodes && has_blocks(grid) && (sums || goal.kind == GoalKind::kAllGather);
}

void append(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context) {
  builder.forgo_bucket();
  if (goal.kind == GoalKind::kAllGather) {
    append_all_gather(builder, goal, context.grid);
  } else {
    append_reduce_scatter(builder, goal, context.grid);
  }
}

// Nothing overlaps in the worst case. Copies down and up take different directions of the bus.
double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  if (!options.native_in_nodes) return std::numeric_limits<double>::infinity();
  const GoalPrice price(links, size);
  const LinkCosts& costs = links.costs();
  const double others = price.nodes() - 1;
  Passage wire = links.messages(others);
  wire.link_us = wire.one_way_us = price.link_us(price.direct_bytes(), true);
  const double staged =
      options.network_takes_device_memory
          ? 0
          : 2 * costs.staging.latency_us + others * price.part_bytes() / costs.staging.bytes_per_us;
  const double local = price.local();
  const double inside = price.nodes() * costs.device.latency_us +
                        (local - 1) / local * size.bytes / costs.device.bytes_per_us;
  return price.rounds_us(wire, 1) + staged + inside;
}

}  // namespace

constinit const GoalAlgorithm goal_algorithms::hierarchical{
    .name = "hierarchical", .serves = serves, .append = append, .predict_us = predict_us};

}  // namespace kolo
