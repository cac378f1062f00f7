#include <algorithm>

#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// Returns the offsets at which the parts of any node begin or end. For nodes of 2 and 3 ranks and
// 12 units:
//
//   node 0    |  r0   |  r1   |        r0 owns pieces 0 and 1, r1 pieces 2 and 3
//   node 1    | r2 | r3  | r4 |        piece 1 is summed by r0 and r3, piece 2 by r1 and r3
//   pieces    | 0  |1 |2 | 3  |
//
// With nodes of equal size the pieces are the parts.
std::vector<std::size_t> cut_points(const Stage& stage, const ProcessGrid& grid, DType dtype) {
  std::vector<std::size_t> cuts{stage.extent.end()};
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::size_t local_size = grid.ranks_of_node(node).size();
    for (std::size_t i = 0; i < local_size; ++i) {
      cuts.push_back(part_of(stage.extent, local_size, i, dtype).offset);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

int owner_in_node(const Stage& stage, const std::vector<int>& ranks, std::size_t element,
                  DType dtype) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Extent part = part_of(stage.extent, ranks.size(), i, dtype);
    if (part.offset <= element && element < part.end()) return ranks[i];
  }
  return -1;
}

/// Whether nodes divide an average before they exchange it, because the sum of a node may exceed
/// the range of float16. A device library divides by the ranks of its node, so nodes must be equal.
bool divides_in_nodes(const BucketLayout& layout, const ProcessGrid& grid) {
  return layout.dtype == DType::kFloat16 && layout.op == ReduceOp::kAverage &&
         grid.largest_node() > 1 && (!layout.is_on_device() || grid.is_even());
}

Stage inside_node(const ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid) {
  const bool divides = grid.num_nodes() == 1 || divides_in_nodes(builder.layout(), grid);
  return {.group = grid.ranks_of_node(grid.node(builder.rank())),
          .extent = stage.extent,
          .finishes = stage.finishes && divides,
          .sink = stage.sink};
}

void append_exchange(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid,
                     AppendStage cross) {
  const DType dtype = builder.layout().dtype;
  const bool is_divided = divides_in_nodes(builder.layout(), grid);
  const std::vector<std::size_t> cuts = cut_points(stage, grid, dtype);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Stage piece{.group = {},
                .extent = {cuts[i], cuts[i + 1] - cuts[i]},
                .finishes = stage.finishes && (builder.layout().is_on_device() || !is_divided),
                .sink = Sink::kBucket,
                .node_shares = stage.node_shares};
    for (int node = 0; node < grid.num_nodes(); ++node) {
      piece.group.push_back(owner_in_node(stage, grid.ranks_of_node(node), cuts[i], dtype));
    }
    const bool mine =
        std::find(piece.group.begin(), piece.group.end(), builder.rank()) != piece.group.end();
    if (mine) cross(builder, piece);
  }
}

ProcessGrid one_rank_per_node(int nodes) {
  return ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(nodes), 1));
}

}  // namespace

void append_hierarchical(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                         const ProcessGrid& grid, const IntraNodePhases& local, AppendStage cross) {
  const bool divides = grid.num_nodes() > 1 && divides_in_nodes(builder.layout(), grid);
  if (divides && builder.layout().is_on_device()) {
    builder.average_over(static_cast<std::size_t>(grid.largest_node()));
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Stage node = inside_node(builder, stages[i], grid);
    local.reduce_scatter(builder, node);
    if (divides && node.size() == 1) {  // Such a node has summed nothing.
      const Range own = builder.bucket(node.extent.offset, node.extent.count);
      builder.reduce(own, {own}, node.finishes);
    }
    if (grid.num_nodes() > 1) append_exchange(builder, stages[i], grid, cross);
    if (i > 0) local.all_gather(builder, inside_node(builder, stages[i - 1], grid));
  }
  if (!stages.empty()) local.all_gather(builder, inside_node(builder, stages.back(), grid));
}

// All parts use each node's link concurrently, as if one rank per node sent all bytes.
StageCost hierarchical_price(const HostLinks& links, const IntraNodePhases& local, HostPrice cross,
                             double bytes) {
  const ProcessGrid& grid = links.grid();
  const StageCost phases = links.largest_node() > 1 ? local.host_price(links, bytes) : StageCost{};
  if (grid.num_nodes() == 1) return phases;
  const ProcessGrid nodes = one_rank_per_node(grid.num_nodes());
  const double groups = links.ranks() / grid.num_nodes();
  return phases + cross(HostLinks(nodes, links.costs(), links.bucket_bytes(), groups), bytes);
}

// A round with 3 peers takes the latency of 4 copies: 3 messages down, and the last one up.
//
//   down   -0- -1- -2-
//   up         -0- -1- -2-
StagedExchange staged_exchange(const ProcessGrid& grid, const LinkCosts& costs, HostPrice price,
                               double bytes, double copied_bytes) {
  LinkCosts counting = network_only(costs);
  counting.memory.latency_us = counting.network.latency_us = counting.network.message_us = 1;
  const StageCost counted = price(HostLinks(grid, counting, bytes), bytes);
  const double rounds = counted.wait_us;
  const double sent = counted.processor_us / 2;  // messages sent; equally many are received
  const double latency_us =
      grid.num_nodes() > 1 ? costs.network.latency_us : costs.memory.latency_us;
  return {
      .copy_us = (rounds + sent) / 2 * costs.staging.latency_us +
                 copied_bytes / costs.staging.bytes_per_us,
      .network_us = rounds * latency_us + counted.link_us + 2 * sent * costs.network.message_us};
}

// A unit passes through the stages in sequence, each stage handles one unit at a time, and the
// order of launches allows two units in flight:
//
//   collectives   RS0 RS1         AG0 RS2     AG1
//   down, network, up  ---0---  ---1---    ---2---
//
//   units follow each other at max(slowest stage, half of all stages)
double hierarchical_device_us(const ProcessGrid& grid, const LinkCosts& costs,
                              const IntraNodePhases& local, HostPrice cross, std::size_t bytes,
                              std::size_t unit_bytes) {
  const std::size_t limit = std::max<std::size_t>(1, unit_bytes);
  const auto units = static_cast<double>(std::max<std::size_t>(1, (bytes + limit - 1) / limit));
  const double unit = static_cast<double>(bytes) / units;
  const double ranks = grid.largest_node();
  const double half = ranks > 1 ? local.device_half_us(costs, ranks, unit) : 0;
  StagedExchange exchange;
  if (grid.num_nodes() > 1) {
    const double nodes = grid.num_nodes();
    exchange = staged_exchange(one_rank_per_node(grid.num_nodes()), costs, cross, unit,
                               2 * (nodes - 1) / nodes * unit / grid.smallest_node());
  }
  const auto [copy, network] = exchange;
  const double all = 2 * half + 2 * copy + network;
  const double slowest = std::max({2 * half, copy, network});
  return all + (units - 1) * std::max(slowest, all / 2);
}

}  // namespace kolo
