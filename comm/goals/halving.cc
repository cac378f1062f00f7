#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <vector>

#include "comm/goals/blocks.h"
#include "comm/goals/goal_price.h"
#include "comm/goals/sums.h"

namespace kolo {
namespace {

// Among n nodes, a power of two, in log2 n rounds. In each the nodes of a pair send each other
// their sums for the other's half of the nodes that are left, and add up those for their own half.
// Received sums have blocks of their own, so that none waits for another round.
//
//   4 nodes, node 0     0 1 2 3 | with 2: 0 1 . .  + 2's | with 1: 0 . . .  + 1's
//   node 3              0 1 2 3 | with 1: . . 2 3  + 1's | with 2: . . . 3  + 2's
//
// So sums of n nodes are made in another order than by all other algorithms.
//
// Source: recursive halving, Thakur, Rabenseifner and Gropp, IJHPCA 2005.
void append(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context) {
  Blocks blocks(builder, goal, context.grid);
  const int nodes = blocks.nodes(), node = blocks.node();
  std::vector<std::size_t> begin{0};  // of the block for each node
  std::map<int, std::size_t> places;
  for (int other = 0; other < nodes; ++other) {
    places[other] = begin.back();
    begin.push_back(begin.back() + blocks.count(node, other));
  }
  const auto count = [&](int first, int nodes_of_run) {
    return begin[static_cast<std::size_t>(first + nodes_of_run)] -
           begin[static_cast<std::size_t>(first)];
  };
  std::size_t received = begin.back();  // where what is received next begins
  std::size_t most = 0;                 // what any node receives
  for (int each = 0; each < nodes; ++each) {
    std::size_t all = 0;
    for (int half = nodes / 2; half > 0; half /= 2) all += count(each - each % half, half);
    most = std::max(most, all);
  }
  blocks.reserve(begin.back() + most);
  blocks.fill(places);
  for (int half = nodes / 2; half > 0 && blocks.is_head(); half /= 2) {
    const int peer = node ^ half;
    const int mine = node - node % half, theirs = peer - peer % half;
    const std::size_t kept = count(mine, half);
    const Range sum = blocks.at(places[mine], kept);
    const Range addend = blocks.at(received, kept);
    builder.send(blocks.head(peer), blocks.at(places[theirs], count(theirs, half)));
    builder.recv(blocks.head(peer), addend);
    if (kept > 0) builder.reduce(sum, {sum, addend}, false);
    received += kept;
  }
  blocks.deliver({{node, places[node]}});
}

bool serves(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid) {
  const bool has_pairs = std::has_single_bit(static_cast<unsigned>(grid.num_nodes()));
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_pairs &&
         goal.kind == GoalKind::kReduceScatter && !sums_in_one_place(layout);
}

bool makes_same_sums(const BucketLayout& layout) { return !is_float(layout.dtype); }

double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  const GoalPrice price(links, size);
  const double received = (price.nodes() - 1) / price.nodes() * size.bytes;
  Passage one = price.doublings() * links.messages_of_heads(2);
  one.link_us = one.one_way_us = price.link_us(price.direct_bytes(), false);
  one.processor_us += links.memory().own_us(3 * received);  // Both addends and the sum.
  return price.blocks_us(one, size.bytes + received, options);
}

}  // namespace

constinit const GoalAlgorithm goal_algorithms::halving{.name = "halving",
                                                       .serves = serves,
                                                       .append = append,
                                                       .predict_us = predict_us,
                                                       .makes_same_sums = makes_same_sums};

}  // namespace kolo
