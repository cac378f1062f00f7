#include <algorithm>
#include <map>
#include <vector>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/host/collective_price.h"
#include "comm/algorithms/host/leader_buffers.h"
#include "comm/algorithms/host/staged_plan.h"
#include "comm/algorithms/host/sums.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

// A binomial tree of nodes, numbered from the root's node on. An edge carries the blocks of all
// nodes below it, so the root handles log2 n messages instead of n - 1.
//
//   gather, 6 nodes      1->0 3->2 5->4 | 2 and 3: 2->0 | 4 and 5: 4->0
//   scatter              the reverse
//
// Blocks gathered for a sum are added up at the root, in node order.
class Tree {
 public:
  Tree(ScheduleBuilder& builder, const CollectiveSpec& spec, const ProcessGrid& grid)
      : builder_(builder),
        buffers_(builder, spec, grid),
        root_(grid.node(spec.root)),
        place_((buffers_.node() - root_ + buffers_.nodes()) % buffers_.nodes()) {
    begin_.push_back(0);
    for (int place = 0; place < buffers_.nodes(); ++place) {
      const int node = node_at(place);
      const std::size_t count = spec.kind == CollectiveKind::kScatter ? buffers_.count(root_, node)
                                                                      : buffers_.count(node, root_);
      begin_.push_back(begin_.back() + count);
    }
    buffers_.reserve(begin_.back());
  }

  void gather() {
    buffers_.fill({{root_, begin(place_)}});
    int distance = 1;
    for (; is_above(distance); distance *= 2) receive_from(place_ + distance, distance);
    if (place_ != 0 && buffers_.is_head()) {
      builder_.send(head_at(place_ - distance), behind(place_, distance));
    }
    if (place_ != 0) return;
    std::map<int, std::size_t> places;
    for (int place = 0; place < buffers_.nodes(); ++place) places[node_at(place)] = begin(place);
    buffers_.deliver(places);
  }

  void scatter() {
    if (place_ == 0) {
      std::map<int, std::size_t> places;
      for (int place = 0; place < buffers_.nodes(); ++place) places[node_at(place)] = begin(place);
      buffers_.fill(places);
    }
    int distance = 1;
    while (is_above(distance)) distance *= 2;
    if (place_ != 0 && buffers_.is_head()) {
      builder_.recv(head_at(place_ - distance), behind(place_, distance));
    }
    while ((distance /= 2) >= 1) {
      if (place_ + distance < buffers_.nodes() && buffers_.is_head()) {
        builder_.send(head_at(place_ + distance), behind(place_ + distance, distance));
      }
    }
    buffers_.deliver({{root_, begin(place_)}});
  }

 private:
  int node_at(int place) const { return (root_ + place) % buffers_.nodes(); }
  int head_at(int place) const { return buffers_.head(node_at(place)); }
  std::size_t begin(int place) const { return begin_[static_cast<std::size_t>(place)]; }
  /// Whether this node is the upper end of an edge of length `distance`, if the lower end exists.
  bool is_above(int distance) const {
    return distance < buffers_.nodes() && (place_ & distance) == 0;
  }
  /// The blocks of the node at `place` and of the nodes below it, over edges shorter than
  /// `distance`.
  Range behind(int place, int distance) const {
    const int end = std::min(place + distance, buffers_.nodes());
    return buffers_.at(begin(place), begin(end) - begin(place));
  }
  void receive_from(int place, int distance) {
    if (place >= buffers_.nodes() || !buffers_.is_head()) return;
    builder_.recv(head_at(place), behind(place, distance));
  }

  ScheduleBuilder& builder_;
  LeaderBuffers buffers_;
  int root_;
  int place_;
  std::vector<std::size_t> begin_;  // offset of each block, starting with the root's
};

void append_broadcast_in_pieces(ScheduleBuilder& builder, const CompileContext& context) {
  for (const Extent& piece : host_pieces(context.layout, context.grid, context.options)) {
    builder.next_chunk();
    append_broadcast(builder, piece, context.spec.root, context.grid);
  }
}

bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  if (spec.kind == CollectiveKind::kBroadcast) {
    // On one node there is no tree; tensors in host memory use `direct`.
    const bool is_for_slots = grid.num_nodes() == 1 && layout.is_in_tensors(MemoryKind::kHost);
    return !layout.is_on_device() && !is_for_slots;
  }
  const bool has_blocks = spec.kind == CollectiveKind::kGather ||
                          spec.kind == CollectiveKind::kScatter ||
                          spec.kind == CollectiveKind::kReduce;
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_blocks;
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  const CollectiveSpec& spec = context.spec;
  if (spec.kind == CollectiveKind::kBroadcast) {
    append_broadcast_in_pieces(builder, context);
  } else if (spec.kind == CollectiveKind::kScatter) {
    Tree(builder, spec, context.grid).scatter();
  } else {
    Tree(builder, spec, context.grid).gather();
  }
}

/// Cost of the messages along the edges of a tree, one length after the other.
StageCost hops(const HostLinks& links) {
  const int nodes = links.grid().num_nodes();
  StageCost all;
  for (int distance = 1; distance < nodes; distance *= 2) {
    const int edges = (nodes - distance + 2 * distance - 1) / (2 * distance);
    all += links.message_pair(edges);
  }
  return all;
}

double predict_broadcast_us(const HostLinks& links, const CollectiveSize& size,
                            const CompileOptions& options) {
  const CollectivePrice price(links, size);
  const double chunk = std::min(
      size.bytes, static_cast<double>(host_chunk_bytes(links.grid(), MemoryKind::kHost, options)));
  const double rounds = chunk > 0 ? size.bytes / chunk : 1;
  StageCost one = hops(links);
  one.link_us = one.one_way_us = price.doublings() * links.link_us(chunk);
  one.processor_us += price.copies_us() / rounds;
  one.wait_us += price.handed_on_us();
  return price.rounds_us(one, rounds);
}

double predict_us(const HostLinks& links, const CollectiveSize& size,
                  const CompileOptions& options) {
  if (size.kind == CollectiveKind::kBroadcast) return predict_broadcast_us(links, size, options);
  const CollectivePrice price(links, size);
  StageCost one = hops(links);
  one.link_us = one.one_way_us = price.link_us(price.direct_bytes(), false);
  const double buffers = size.kind == CollectiveKind::kReduce ? price.nodes() : 1;
  return price.blocks_us(one, buffers * size.bytes, options);
}

constinit const CollectiveAlgorithm kTree(
    {.name = "tree", .serves = serves, .append = append, .predict_us = predict_us});

}  // namespace

constinit const Algorithm& algorithms::tree = kTree;
}  // namespace kolo
