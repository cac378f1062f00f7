#include <algorithm>
#include <map>
#include <vector>

#include "comm/algorithms/host/collective_price.h"
#include "comm/algorithms/host/leader_buffers.h"
#include "comm/algorithms/host/staged_plan.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

// Exchange among n nodes in log2 n rounds, for any n. A node numbers blocks relative to itself:
// block j belongs to the node j positions ahead.
//
// All-gather: in the round of distance d, a node sends its first d blocks to the node d positions
// back, which then has its first 2d blocks.
//
//   4 nodes, node 0     0 . . . | 0 1 . . | 0 1 2 3
//
// All-to-all: block j must move j positions. In the round of distance d, it moves d positions if j
// has bit d set. All blocks that a node sends in one round form one message.
//
//   4 nodes, node 0     sends 1, 3 to 1 | sends 2, 3 to 2: this 3 goes from node 3 to node 2
//
// A reduce-scatter is an all-to-all of the sums of nodes, which the receivers add up.
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 1997.
int wrapped(int node, int nodes) { return (node % nodes + nodes) % nodes; }

void append_all_gather(ScheduleBuilder& builder, const CollectiveSpec& spec,
                       const ProcessGrid& grid) {
  LeaderBuffers buffers(builder, spec, grid);
  const int nodes = buffers.nodes();
  const auto node_at = [&](int j) { return wrapped(buffers.node() + j, nodes); };
  std::vector<std::size_t> begin{0};  // offset of each block, starting with this node's
  for (int j = 0; j < nodes; ++j) {
    begin.push_back(begin.back() + buffers.count(node_at(j), buffers.node()));
  }
  const auto run = [&](int first, int last) {
    const std::size_t offset = begin[static_cast<std::size_t>(first)];
    return buffers.at(offset, begin[static_cast<std::size_t>(last)] - offset);
  };
  buffers.reserve(begin.back());
  buffers.fill({{buffers.node(), 0}});
  for (int distance = 1; distance < nodes && buffers.is_head(); distance *= 2) {
    const int number = std::min(distance, nodes - distance);
    builder.send(buffers.head(node_at(-distance)), run(0, number));
    builder.recv(buffers.head(node_at(distance)), run(distance, distance + number));
  }
  std::map<int, std::size_t> places;
  for (int j = 0; j < nodes; ++j) places[node_at(j)] = begin[static_cast<std::size_t>(j)];
  buffers.deliver(places);
}

/// The locations of one node's blocks after each round of an all-to-all.
class BlockPlaces {
 public:
  BlockPlaces(const LeaderBuffers& buffers, int node) : buffers_(buffers), node_(node) {
    for (int j = 0; j < buffers.nodes(); ++j) places_.push_back(take(count_before(j, 1)));
  }

  struct Message {
    int to = 0, from = 0;         ///< Receiving and sending node.
    std::vector<Extent> buffers;  ///< Locations of the sent blocks, by number.
    Extent sent, received;        ///< The message, contiguous in the head's memory.
  };

  /// Performs the round of `distance`. Each round must have twice the distance of the last one.
  Message round(int distance) {
    Message message{.to = wrapped(node_ + distance, buffers_.nodes()),
                    .from = wrapped(node_ - distance, buffers_.nodes()),
                    .buffers = {},
                    .sent = {},
                    .received = {}};
    for (int j = 0; j < buffers_.nodes(); ++j) {
      if ((j & distance) == 0) continue;
      message.buffers.push_back(places_[static_cast<std::size_t>(j)]);
      message.sent.count += message.buffers.back().count;
    }
    message.sent = take(message.sent.count);
    message.received.offset = used_;
    for (int j = 0; j < buffers_.nodes(); ++j) {
      if ((j & distance) == 0) continue;
      places_[static_cast<std::size_t>(j)] = take(count_before(j, 2 * distance));
    }
    message.received.count = used_ - message.received.offset;
    return message;
  }

  /// Current location of block j in the head's memory.
  const Extent& place(int j) const { return places_[static_cast<std::size_t>(j)]; }
  /// Elements of memory used so far.
  std::size_t used() const { return used_; }

 private:
  /// Elements of block j on this node before the round of `distance`. The block has moved by the
  /// bits of j below `distance`.
  std::size_t count_before(int j, int distance) const {
    const int from = wrapped(node_ - j % distance, buffers_.nodes());
    return buffers_.count(from, wrapped(from + j, buffers_.nodes()));
  }
  Extent take(std::size_t count) {
    used_ += count;
    return {used_ - count, count};
  }

  const LeaderBuffers& buffers_;
  int node_;
  std::vector<Extent> places_;
  std::size_t used_ = 0;
};

/// Elements of memory that the busiest node needs.
std::size_t memory_of_all(const LeaderBuffers& buffers) {
  std::size_t most = 0;
  for (int node = 0; node < buffers.nodes(); ++node) {
    BlockPlaces blocks_of_node(buffers, node);
    for (int distance = 1; distance < buffers.nodes(); distance *= 2)
      blocks_of_node.round(distance);
    most = std::max(most, blocks_of_node.used());
  }
  return most;
}

void append_all_to_all(ScheduleBuilder& builder, const CollectiveSpec& spec,
                       const ProcessGrid& grid) {
  LeaderBuffers buffers(builder, spec, grid);
  const int nodes = buffers.nodes();
  buffers.reserve(memory_of_all(buffers));
  BlockPlaces block_places(buffers, buffers.node());
  std::map<int, std::size_t> places;
  for (int j = 0; j < nodes; ++j) {
    places[wrapped(buffers.node() + j, nodes)] = block_places.place(j).offset;
  }
  buffers.fill(places);
  for (int distance = 1; distance < nodes; distance *= 2) {
    const BlockPlaces::Message message = block_places.round(distance);
    if (!buffers.is_head()) continue;
    std::size_t next = message.sent.offset;
    for (const Extent& block : message.buffers) {
      builder.move(buffers.at(next, block.count), buffers.at(block.offset, block.count));
      next += block.count;
    }
    builder.send(buffers.head(message.to), buffers.at(message.sent.offset, message.sent.count));
    builder.recv(buffers.head(message.from),
                 buffers.at(message.received.offset, message.received.count));
  }
  places.clear();
  for (int j = 0; j < nodes; ++j) {
    places[wrapped(buffers.node() - j, nodes)] = block_places.place(j).offset;
  }
  buffers.deliver(places);
}

bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  const bool has_blocks = spec.kind == CollectiveKind::kAllGather ||
                          spec.kind == CollectiveKind::kAllToAll ||
                          spec.kind == CollectiveKind::kReduceScatter;
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_blocks;
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  const CollectiveSpec& spec = context.spec;
  spec.kind == CollectiveKind::kAllGather ? append_all_gather(builder, spec, context.grid)
                                          : append_all_to_all(builder, spec, context.grid);
}

double predict_us(const HostLinks& links, const CollectiveSize& size,
                  const CompileOptions& options) {
  const CollectivePrice price(links, size);
  const double rounds = price.doublings();
  double bytes = price.direct_bytes();
  double held = size.bytes;
  if (size.kind != CollectiveKind::kAllGather) {
    // Half of the blocks move in each round.
    const double all = price.direct_bytes() * price.nodes() / (price.nodes() - 1);
    bytes = rounds * all / 2;
    held = (1 + rounds) * all;
  }
  StageCost one = rounds * links.messages_of_heads(2);
  one.link_us = one.one_way_us = price.link_us(bytes, false);
  return price.blocks_us(one, held, options);
}

constinit const CollectiveAlgorithm kBruck(
    {.name = "bruck", .serves = serves, .append = append, .predict_us = predict_us});

}  // namespace

constinit const Algorithm& algorithms::bruck = kBruck;
}  // namespace kolo
