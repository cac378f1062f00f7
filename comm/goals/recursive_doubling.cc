#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "comm/goals/blocks.h"
#include "comm/goals/goal_price.h"

namespace kolo {
namespace {

// Among n nodes, a power of two, in log2 n rounds. In the round of distance d the nodes of a pair
// whose numbers differ in the bit d exchange the d blocks that each has, which lie where they are
// in the end: side by side, in the order of nodes.
//
//   4 nodes, node 0     0 . . . | 0 1 . .  with 1 | 0 1 2 3  with 2
//   node 3              . . . 3 | . . 2 3  with 2 | 0 1 2 3  with 1
//
// Bruck's rounds take any number of nodes, with two peers in each round and blocks that are turned
// round at the end.
//
// Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005.
void append(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context) {
  Blocks blocks(builder, goal, context.grid);
  const int nodes = blocks.nodes();
  std::vector<std::size_t> begin{0};  // of each node's block
  std::map<int, std::size_t> places;
  for (int node = 0; node < nodes; ++node) {
    places[node] = begin.back();
    begin.push_back(begin.back() + blocks.count(node, blocks.node()));
  }
  blocks.reserve(begin.back());
  blocks.fill({{blocks.node(), places[blocks.node()]}});
  for (int distance = 1; distance < nodes && blocks.is_head(); distance *= 2) {
    const auto run_of = [&](int node) {  // The blocks that it has before this round.
      const auto first = static_cast<std::size_t>(node - node % distance);
      const std::size_t last = first + static_cast<std::size_t>(distance);
      return blocks.at(begin[first], begin[last] - begin[first]);
    };
    const int peer = blocks.node() ^ distance;
    builder.send(blocks.head(peer), run_of(blocks.node()));
    builder.recv(blocks.head(peer), run_of(peer));
  }
  blocks.deliver(places);
}

bool serves(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid) {
  const bool has_pairs = std::has_single_bit(static_cast<unsigned>(grid.num_nodes()));
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_pairs &&
         goal.kind == GoalKind::kAllGather;
}

double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  const GoalPrice price(links, size);
  Passage one = price.doublings() * links.messages_of_heads(2);
  one.link_us = one.one_way_us = price.link_us(price.direct_bytes(), false);
  return price.blocks_us(one, size.bytes, options);
}

}  // namespace

constinit const GoalAlgorithm goal_algorithms::recursive_doubling{
    .name = "recursive_doubling", .serves = serves, .append = append, .predict_us = predict_us};

}  // namespace kolo
