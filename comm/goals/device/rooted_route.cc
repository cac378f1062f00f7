#include "comm/goals/device/rooted_route.h"

#include <algorithm>

#include "comm/goals/goal_price.h"

namespace kolo {
namespace {

/// Hops of one piece that follow each other, and those that its busiest node has.
struct Hops {
  double in_a_row = 0, of_node = 0;
};

Hops hops_of(TreeShape shape, const GoalPrice& price) {
  const double others = price.nodes() - 1;
  switch (shape) {
    case TreeShape::kBinomial:
      return {.in_a_row = price.doublings(), .of_node = price.doublings()};
    case TreeShape::kChain:
      return {.in_a_row = others, .of_node = 1};
    case TreeShape::kStar:
      break;
  }
  return {.in_a_row = others, .of_node = others};
}

/// More are little faster: each takes two collectives of a node, and flags for them.
constexpr std::size_t kMostPieces = 64;

// Nothing of one piece overlaps in the worst case. Pieces follow each other as closely as the
// library, the bus, the link, and the thread that launches all this allow.
double route_us(const Hops& hops, const HostLinks& links, const GoalSize& size, double piece,
                const CompileOptions& options) {
  const GoalPrice price(links, size);
  const LinkCosts& costs = links.costs();
  const double share = piece / price.local();
  const Passage message = links.messages(size.tensors);
  const double staged_us =
      options.network_takes_device_memory ? 0 : transfer_us(costs.staging, share);
  const double link_us = price.link_us(piece, hops.of_node > 1);
  const double hop_us = message.wait_us + message.processor_us + link_us + 2 * staged_us;
  // Two collectives, with a share for each rank of the node.
  const double inside_us = 2 * transfer_us(costs.device, piece - share);
  const double copies_us = options.network_takes_device_memory ? 0 : 2 * costs.staging.latency_us;
  const double launches_us =
      2 * costs.device.latency_us + hops.of_node * (copies_us + message.processor_us);
  const double busiest_us =
      std::max({inside_us, launches_us, hops.of_node * std::max(link_us, staged_us)});
  const double followers = piece > 0 ? size.bytes / piece - 1 : 0;
  return costs.bucket_us + inside_us + hops.in_a_row * hop_us + followers * busiest_us;
}

RootedRoute route_by(TreeShape shape, const HostLinks& links, const GoalSize& size,
                     const CompileOptions& options) {
  const Hops hops = hops_of(shape, GoalPrice(links, size));
  RootedRoute best;
  for (std::size_t pieces = 1; pieces <= kMostPieces; pieces *= 2) {
    const double piece = size.bytes / static_cast<double>(pieces);
    const double us = route_us(hops, links, size, piece, options);
    if (pieces == 1 || us < best.us) best = {.shape = shape, .pieces = pieces, .us = us};
  }
  return best;
}

}  // namespace

TreeEdges edges_of(TreeShape shape, int node, int nodes) {
  TreeEdges edges;
  int distance = 1;
  switch (shape) {
    case TreeShape::kBinomial:
      for (; distance < nodes && (node & distance) == 0; distance *= 2) {
        if (node + distance < nodes) edges.below.push_back(node + distance);
      }
      break;
    case TreeShape::kChain:
      if (node + 1 < nodes) edges.below.push_back(node + 1);
      break;
    case TreeShape::kStar:
      for (int other = 1; other < nodes && node == 0; ++other) edges.below.push_back(other);
      distance = node;
      break;
  }
  if (node > 0) edges.above = node - distance;
  return edges;
}

RootedRoute cheapest_route(const HostLinks& links, const GoalSize& size,
                           const CompileOptions& options) {
  const bool would_round = size.kind == GoalKind::kReduce && size.sums_in_one_place;
  if (would_round) return route_by(TreeShape::kStar, links, size, options);
  const RootedRoute tree = route_by(TreeShape::kBinomial, links, size, options);
  const RootedRoute chain = route_by(TreeShape::kChain, links, size, options);
  return chain.us < tree.us ? chain : tree;
}

}  // namespace kolo
