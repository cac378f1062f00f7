#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// Part k of the extent is sent around the ring once, and each rank adds its contribution, until
// rank k holds the whole sum. Then the sums are sent around the ring to all ranks. For n = 4, rank
// p sends these parts in rounds 0, 1 and 2:
//
//   reduce-scatter   p-1  p-2  p-3        all-gather   p  p-1  p-2
//   part 1 is summed in the order of ranks 2, 3, 0, 1
//
// Source: Patarasuk and Yuan, JPDC 2009.
struct Ring {
  Ring(const ScheduleBuilder& builder, const Stage& of)
      : stage(of),
        size(of.size()),
        position(of.position(builder.rank())),
        next(of.group[(position + 1) % size]),
        previous(of.group[(position + size - 1) % size]) {}

  Range part(const ScheduleBuilder& builder, std::size_t index) const {
    const Extent extent = part_of(stage.extent, size, index % size, builder.layout().dtype);
    return builder.bucket(extent.offset, extent.count);
  }

  const Stage& stage;
  std::size_t size, position;
  int next, previous;
};

void reduce_scatter(ScheduleBuilder& builder, const Stage& stage) {
  const Ring ring(builder, stage);
  if (ring.size == 1) return;
  // Two receive buffers: one is filled while the other is added.
  const Range slots[] = {builder.scratch(ring.part(builder, 0).count),
                         builder.scratch(ring.part(builder, 0).count)};
  for (std::size_t round = 0; round + 1 < ring.size; ++round) {
    builder.send(ring.next, ring.part(builder, ring.position + ring.size - 1 - round));
    const Range own = ring.part(builder, ring.position + 2 * ring.size - 2 - round);
    Range received = slots[round % 2];
    received.count = own.count;
    builder.recv(ring.previous, received);
    builder.reduce(own, {received, own}, stage.finishes && round + 2 == ring.size);
  }
}

void all_gather(ScheduleBuilder& builder, const Stage& stage) {
  const Ring ring(builder, stage);
  for (std::size_t round = 0; round + 1 < ring.size; ++round) {
    builder.send(ring.next, ring.part(builder, ring.position + ring.size - round));
    builder.recv(ring.previous, ring.part(builder, ring.position + ring.size - 1 - round));
  }
  for (std::size_t index = 0; index < ring.size; ++index) {
    builder.deliver(ring.part(builder, index), stage.sink);
  }
}

void exchange(ScheduleBuilder& builder, const Stage& stage) {
  reduce_scatter(builder, stage);
  all_gather(builder, stage);
}

// Cost of 2 (ranks - 1) rounds, each of which sends one part; `round` is the cost of one round.
StageCost price_of(const HostLinks& links, const Round& round, double ranks, double bytes) {
  const double part = bytes / ranks;
  StageCost all = 2.0 * (ranks - 1) * round.stage_cost(part);
  all.processor_us += (ranks - 1) * links.combine_us(links.largest_node(), 2, part);
  return all;
}

StageCost price(const HostLinks& links, double bytes) {
  Round round(links);
  const int ranks = links.grid().world_size();
  for (int rank = 0; rank < ranks; ++rank) round.add(rank, (rank + 1) % ranks);
  return price_of(links, round, ranks, bytes);
}

// All nodes work concurrently; the largest node is the slowest.
StageCost phases_price(const HostLinks& links, double bytes) {
  const ProcessGrid& grid = links.grid();
  Round round(links);
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::vector<int>& ranks = grid.ranks_of_node(node);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      round.add(ranks[i], ranks[(i + 1) % ranks.size()]);
    }
  }
  return price_of(links, round, links.largest_node(), bytes);
}

// Each part is copied to the host, and from the host to the next device.
double half_us(const LinkCosts& costs, double ranks, double bytes) {
  return (ranks - 1) * 2 * transfer_us(costs.staging, bytes / ranks);
}

constexpr IntraNodePhases kIntraNodePhases{.reduce_scatter = reduce_scatter,
                                           .all_gather = all_gather,
                                           .host_price = phases_price,
                                           .device_half_us = half_us};

}  // namespace

constinit const FlatAllReduce all_reduce::ring{.name = "ring",
                                               .memories = {.host = true, .device = true},
                                               .auto_choice = {.host = true},
                                               .owns_parts = true,
                                               .exchange = exchange,
                                               .send_order = -1,
                                               .phases = &kIntraNodePhases,
                                               .price = price};

}  // namespace kolo
