#include <algorithm>

#include "comm/collective/algorithm.h"

namespace kolo {
namespace {

// Where the parts of any node begin or end. For nodes of 2 and 3 ranks and 12 units:
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

Stage inside_node(const ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid) {
  return {.group = grid.ranks_of_node(grid.node(builder.rank())),
          .extent = stage.extent,
          .finishes = stage.finishes && grid.num_nodes() == 1,
          .sink = stage.sink};
}

void append_exchange(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid,
                     AllReduce cross) {
  const DType dtype = builder.layout().dtype;
  const std::vector<std::size_t> cuts = cut_points(stage, grid, dtype);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Stage piece{.group = {},
                .extent = {cuts[i], cuts[i + 1] - cuts[i]},
                .finishes = stage.finishes,
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

}  // namespace

void append_pipelined_hierarchical(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                                   const ProcessGrid& grid, const ScatterGather& local,
                                   AllReduce cross) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    local.reduce_scatter(builder, inside_node(builder, stages[i], grid));
    if (grid.num_nodes() > 1) append_exchange(builder, stages[i], grid, cross);
    if (i > 0) local.all_gather(builder, inside_node(builder, stages[i - 1], grid));
  }
  if (!stages.empty()) local.all_gather(builder, inside_node(builder, stages.back(), grid));
}

void append_hierarchical(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid,
                         const ScatterGather& local, AllReduce cross) {
  append_pipelined_hierarchical(builder, {stage}, grid, local, cross);
}

}  // namespace kolo
