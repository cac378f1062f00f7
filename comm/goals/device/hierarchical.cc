#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/goals/device/part_exchange.h"
#include "comm/goals/device/places.h"
#include "comm/goals/device/rooted_route.h"
#include "comm/goals/device/shared_out.h"
#include "comm/goals/goal_price.h"
#include "comm/goals/sums.h"

namespace kolo {
namespace {

// Between nodes, each rank passes what is of its place in the node, through staging memory; inside
// them the device's own library does the rest. So the ranks of a node share this work, and each
// element crosses a link once. Here ==> is between nodes:
//
//   all-gather       own part ==> peers, which have this place; each node's parts: a gather
//   gather           own part ==> peer in the root's node; each node's parts: an exchange
//   all-to-all       what is for another node ==> peer there; each node's: an exchange
//   scatter          each node's parts: an exchange in the root's node; the peer's part ==> peer
//   reduce-scatter   each node's parts: a sum; the peer's part of it ==> peer, which adds them up
//   reduce, broadcast   see shared_out.h
//
// Several tensors share each call of the library, and have messages of their own.

/// As many sums as a kernel of a device adds up: its `kMostReduceSources`.
constexpr std::size_t kMostNodes = 64;

void append_all_gather(ScheduleBuilder& builder, const Places& places) {
  for (const int node : places.receivers()) {
    for (std::size_t i = 0; i < places.tensors() && node != places.node(); ++i) {
      builder.send(places.peer(node), input(builder, places.part(i, places.rank())));
    }
  }
  for (const int node : places.senders()) {
    std::vector<Range> sources, parts;
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      const Extent& part = places.part(i, places.peer(node));
      const bool is_own = node == places.node();
      sources.push_back(is_own ? input(builder, part) : home(builder, part));
      if (!is_own) builder.recv(places.peer(node), sources.back());
      for (const int rank : places.ranks(node)) {
        parts.push_back(home(builder, places.part(i, rank)));
      }
    }
    builder.gather_parts(NativeGroup::kNode, std::move(sources), std::move(parts));
  }
}

// The root holds parts where they go, another rank of its place until they are handed on.
Range held(ScheduleBuilder& builder, const Range& at_root, int root) {
  return builder.rank() == root ? at_root : builder.scratch(at_root.count);
}

void append_gather(ScheduleBuilder& builder, const Places& places, int root) {
  if (!places.is_at_root()) {
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      builder.send(places.peer_at_root(), input(builder, places.part(i, places.rank())));
    }
    return;
  }
  for (const int node : places.senders()) {
    PartExchange exchange(builder, places.tensors(), places.size());
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      const Extent& part = places.part(i, places.peer(node));
      Range source = input(builder, part);
      if (node != places.node()) {
        source = held(builder, home(builder, part), root);
        builder.recv(places.peer(node), source);
      }
      exchange.give(i, places.place_of(root), source);
      if (places.rank() != root) continue;
      for (const int rank : places.ranks(node)) {
        exchange.get(i, places.place_of(rank), home(builder, places.part(i, rank)));
      }
    }
    std::move(exchange).append_to(builder, NativeGroup::kNode);
  }
}

void append_scatter(ScheduleBuilder& builder, const Places& places, int root) {
  if (!places.is_at_root()) {
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      builder.recv(places.peer_at_root(), home(builder, places.part(i, places.rank())));
    }
    return;
  }
  for (const int node : places.receivers()) {
    PartExchange exchange(builder, places.tensors(), places.size());
    std::vector<Range> targets;  // by tensor
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      const Extent& part = places.part(i, places.peer(node));
      const bool is_own = node == places.node();
      targets.push_back(is_own ? home(builder, part) : held(builder, input(builder, part), root));
      // The root sends its peer's part from where it lies.
      const bool lies_here = !is_own && places.rank() == root;
      if (!lies_here) exchange.get(i, places.place_of(root), targets.back());
      if (places.rank() != root) continue;
      for (const int rank : places.ranks(node)) {
        if (lies_here && rank == places.peer(node)) continue;
        exchange.give(i, places.place_of(rank), input(builder, places.part(i, rank)));
      }
    }
    std::move(exchange).append_to(builder, NativeGroup::kNode);
    if (node == places.node()) continue;
    for (const Range& target : targets) builder.send(places.peer(node), target);
  }
}

/// One extent of parts that lie side by side.
Extent joined(const std::vector<Extent>& parts) {
  return {.offset = parts.front().offset, .count = parts.back().end() - parts.front().offset};
}

/// Where `extent` is in a range that holds what the bucket has from `begin` on.
Range inside(const Range& range, std::size_t begin, const Extent& extent) {
  return {range.rank, range.region, range.offset + extent.offset - begin, extent.count};
}

/// Everything that this rank has for others, by tensor: a copy where results replace it.
std::vector<Range> contributions(ScheduleBuilder& builder, const Places& places) {
  std::vector<Range> sources;
  for (std::size_t i = 0; i < places.tensors(); ++i) {
    const Range source = input(builder, places.contribution(i));
    sources.push_back(source);
    if (!builder.layout().replaces_inputs) continue;
    sources.back() = builder.scratch(source.count);
    builder.move(sources.back(), source);
  }
  return sources;
}

void append_all_to_all(ScheduleBuilder& builder, const Places& places) {
  const std::vector<Range> sources = contributions(builder, places);
  const auto given = [&](std::size_t tensor, int node) {
    return inside(sources[tensor], places.contribution(tensor).offset,
                  joined(places.parts_for(tensor, places.rank(), node)));
  };
  for (const int node : places.receivers()) {
    for (std::size_t i = 0; i < places.tensors() && node != places.node(); ++i) {
      builder.send(places.peer(node), given(i, node));
    }
  }
  for (const int node : places.senders()) {
    const bool is_own = node == places.node();
    PartExchange exchange(builder, places.tensors(), places.size());
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      const std::vector<Extent> parts = places.parts_for(i, places.peer(node), places.node());
      const Extent all = joined(parts);
      const Range block = is_own ? given(i, node) : builder.scratch(all.count);
      if (!is_own) builder.recv(places.peer(node), block);
      for (std::size_t place = 0; place < places.size(); ++place) {
        // In place, a rank's own part stays where it is.
        if (is_own && place == places.place() && builder.layout().replaces_inputs) continue;
        const int from = places.ranks(node)[place];
        exchange.give(i, place, inside(block, all.offset, parts[place]));
        exchange.get(i, place, home(builder, places.part_of_pair(i, from, places.rank())));
      }
    }
    std::move(exchange).append_to(builder, NativeGroup::kNode);
  }
}

void append_reduce_scatter(ScheduleBuilder& builder, const Places& places) {
  // The sums of each node of what this rank receives, by tensor and node.
  std::vector<std::vector<Range>> addends(places.tensors(), std::vector<Range>(places.nodes()));
  const auto addend = [&](std::size_t tensor, int node) -> Range& {
    return addends[tensor][static_cast<std::size_t>(node)];
  };
  for (const int node : places.receivers()) {
    std::vector<Range> sums, parts;
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      sums.push_back(builder.scratch(places.part(i, places.peer(node)).count));
      for (const int rank : places.ranks(node)) {
        parts.push_back(input(builder, places.part(i, rank)));
      }
    }
    builder.reduce_parts(NativeGroup::kNode, sums, std::move(parts), false);
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      if (node == places.node()) {
        addend(i, node) = sums[i];
      } else {
        builder.send(places.peer(node), sums[i]);
      }
    }
  }
  for (const int node : places.senders()) {
    for (std::size_t i = 0; i < places.tensors() && node != places.node(); ++i) {
      addend(i, node) = builder.scratch(addend(i, places.node()).count);
      builder.recv(places.peer(node), addend(i, node));
    }
  }
  for (std::size_t i = 0; i < places.tensors(); ++i) {
    const Extent& part = places.part(i, places.rank());
    builder.reduce(home(builder, part), std::move(addends[i]), true);
  }
}

/// Whether messages and calls have the parts of all ranks of a node as one block.
bool moves_blocks(GoalKind kind) {
  return kind == GoalKind::kAllGather || kind == GoalKind::kReduceScatter ||
         kind == GoalKind::kAllToAll;
}

/// Whether such parts lie side by side: ranks of a node follow each other.
bool has_blocks(const ProcessGrid& grid) {
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::vector<int>& ranks = grid.ranks_of_node(node);
    if (ranks.back() - ranks.front() != static_cast<int>(ranks.size()) - 1) return false;
  }
  return true;
}

bool is_shared_out(GoalKind kind) {
  return kind == GoalKind::kReduce || kind == GoalKind::kBroadcast;
}

// Sums that are scaled are packed, of all tensors together.
bool takes(const Goal& goal, const BucketLayout& layout) {
  const bool sums = goal.kind == GoalKind::kReduceScatter || goal.kind == GoalKind::kReduce;
  if (layout.is_on_device() && is_packed(layout)) return sums && goal.tensors == 1;
  return layout.is_in_tensors(MemoryKind::kDevice) && goal.kind != GoalKind::kAllReduce &&
         goal.kind != GoalKind::kOther;
}

/// Whether one rank adds up a sum of each node.
bool adds_up_all(const Goal& goal, const BucketLayout& layout) {
  return goal.kind == GoalKind::kReduceScatter ||
         (goal.kind == GoalKind::kReduce && sums_in_one_place(layout));
}

// Each rank has a peer in each node.
bool serves(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid) {
  const auto nodes = static_cast<std::size_t>(grid.num_nodes());
  return takes(goal, layout) && nodes > 1 && grid.is_even() &&
         (!adds_up_all(goal, layout) || nodes <= kMostNodes) &&
         (!moves_blocks(goal.kind) || has_blocks(grid));
}

void append_collective(ScheduleBuilder& builder, const Goal& goal, const Places& places,
                       const GoalContext& context) {
  // As many native steps as the root's node has; elsewhere flags are numbered alike.
  builder.reserve_flags(narrow<std::uint32_t>(places.nodes()));
  switch (goal.kind) {
    case GoalKind::kReduce:
    case GoalKind::kBroadcast:
      return append_shared_out(builder, goal, places, context);
    case GoalKind::kReduceScatter:
      return append_reduce_scatter(builder, places);
    case GoalKind::kAllGather:
      return append_all_gather(builder, places);
    case GoalKind::kGather:
      return append_gather(builder, places, goal.root);
    case GoalKind::kScatter:
      return append_scatter(builder, places, goal.root);
    default:
      return append_all_to_all(builder, places);
  }
}

void append(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context) {
  const bool packs = is_packed(builder.layout());
  if (packs) {
    builder.load(builder.bucket(0, builder.layout().count));
  } else {
    builder.forgo_bucket();
  }
  if (goal.count() == 0) return;
  append_collective(builder, goal, Places(goal, context.grid, builder.rank()), context);
  if (!packs) return;
  for (const Goal::Part& part : goal.parts) {
    const Range result = builder.bucket(part.extent.offset, part.extent.count);
    if (part.receives(builder.rank())) builder.deliver(result, Sink::kUser);
  }
}

// Nothing overlaps in the worst case. Copies down and up take different directions of the bus.
double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  if (!options.native_in_nodes) return std::numeric_limits<double>::infinity();
  if (is_shared_out(size.kind)) return cheapest_route(links, size, options).us;
  const GoalPrice price(links, size);
  const LinkCosts& costs = links.costs();
  const double nodes = price.nodes(), local = price.local();
  const bool is_exchange = size.kind == GoalKind::kAllToAll;
  const double crossing = (nodes - 1) / nodes * size.bytes / (is_exchange ? nodes : 1);
  Passage wire = links.messages((nodes - 1) * size.tensors);
  wire.link_us = wire.one_way_us = price.link_us(crossing, true);
  const double staged =
      options.network_takes_device_memory
          ? 0
          : costs.staging.latency_us + transfer_us(costs.staging, crossing / local);
  const double handed_on = (local - 1) / local * size.bytes / (is_exchange ? nodes * local : 1);
  const double inside = nodes * costs.device.latency_us + handed_on / costs.device.bytes_per_us;
  return price.rounds_us(wire, 1) + staged + inside;
}

}  // namespace

constinit const GoalAlgorithm goal_algorithms::hierarchical{
    .name = "hierarchical", .serves = serves, .append = append, .predict_us = predict_us};

}  // namespace kolo
