#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

/// Largest bucket in bytes for which "auto" chooses `flat`. `flat` stages a whole bucket twice, so
/// a wrong price of a large bucket would cost much memory.
constexpr std::size_t kLargest = std::size_t{256} << 10;

// Every rank publishes a copy of its contribution, signals all ranks, and sums all copies in group
// order. Ranks of the same node read the copy in place; other ranks receive it by message. For
// nodes {0, 1} and {2}, rank 1 sums:
//
//   staging of rank 0   a0 a1 a2      flag from rank 0, read in place
//   staging of rank 1   b0 b1 b2      own
//   scratch             c0 c1 c2      message from rank 2
//
// This takes one trip; algorithms with part owners take two. Peers may still read a copy after the
// iteration has ended on its rank. Therefore a rank alternates between two copies: the peer's
// signal of the next iteration implies that it has read the previous copy.
void append_stage(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid) {
  const std::size_t own = stage.position(builder.rank());
  const Placement placement = builder.layout().placement;
  const Range home = builder.home(stage.extent.offset, stage.extent.count);
  if (placement != Placement::kInPlace) builder.forgo_bucket();
  builder.set_staging_turns(2);

  const Range copy = builder.staging(stage.extent.count);
  builder.move(copy, builder.input(stage.extent.offset, stage.extent.count));
  for_each_peer(stage, own, [&](std::size_t peer) {
    const int rank = stage.group[peer];
    if (grid.same_node(builder.rank(), rank)) {
      builder.signal(rank, copy, Access::kRead);
    } else {
      builder.send(rank, copy);
    }
  });
  std::vector<Range> contributions(stage.size(), copy);
  for_each_peer(stage, own, [&](std::size_t peer) {
    const int rank = stage.group[peer];
    if (grid.same_node(builder.rank(), rank)) {
      contributions[peer].rank = rank;
      builder.await(rank, contributions[peer]);
    } else {
      contributions[peer] = builder.scratch(copy.count);
      builder.recv(rank, contributions[peer]);
    }
  });
  // Tensors of another dtype are cast from the rounded sum.
  const Range sum = placement == Placement::kStaged ? builder.scratch(copy.count) : home;
  if (stage.size() == 1) {
    builder.move(home, copy);
    return;
  }
  builder.reduce(sum, contributions, stage.finishes);
  if (sum != home) builder.move(home, sum);
}

void append(ScheduleBuilder& builder, const std::vector<Stage>& stages,
            const CompileContext& context) {
  for (const Stage& stage : stages) {
    builder.next_chunk();
    append_stage(builder, stage, context.grid);
  }
}

// Each rank copies its bucket to mapped memory and, after one trip, reads all copies.
StageCost price_in_memory(const HostLinks& links, double bytes) {
  const double ranks = links.ranks();
  return {.wait_us = links.costs().memory.latency_us,
          .processor_us = links.flags_us(ranks, 1) + 2 * links.costs().step_us +
                          links.memory().own_us(ranks * 4 * bytes) +
                          links.memory().shared_us(ranks * (ranks - 1) * bytes)};
}

StageCost price(const HostLinks& links, double bytes) {
  const ProcessGrid& grid = links.grid();
  if (grid.num_nodes() == 1) return price_in_memory(links, bytes);
  StageCost slowest;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const auto local = static_cast<double>(grid.ranks_of_node(node).size());
    const double remote = links.ranks() - local;
    StageCost each = links.messages(2 * remote);
    each.link_us = each.one_way_us = links.link_us(local * remote * bytes);
    each.processor_us += links.flags_us(local, 1) + links.memory().own_us(local * 2 * bytes) +
                         links.memory().shared_us(local * (local - 1) * bytes) +
                         links.combine_us(local, remote + 1, bytes);
    slowest = slower(slowest, each);
  }
  return slowest;
}

// `price` includes packing, and nothing is unpacked.
StageCost packing_price(const HostLinks&, double, Packing) { return {}; }

}  // namespace

constinit const FlatAllReduce all_reduce::flat{.name = "flat",
                                               .memories = {.host = true},
                                               .auto_choice = {.host = true},
                                               .auto_most_bytes = kLargest,
                                               .sums_in_one_place = true,
                                               .maps_memory = true,
                                               .append = append,
                                               .in_one_piece = true,
                                               .price = price,
                                               .packing_price = packing_price};

}  // namespace kolo
