#include <algorithm>

#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// Every rank owns the part at its position and sums it in group order, as between nodes, but reads
// the contributions in place.

void reduce_scatter_in_memory(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t own = stage.position(builder.rank());
  if (stage.size() == 1) return;
  std::vector<Range> contributions(stage.size());
  contributions[own] = part_at(builder, stage, builder.rank(), own);
  for_each_peer(stage, own, [&](std::size_t peer) {
    builder.signal(stage.group[peer], part_at(builder, stage, builder.rank(), peer), Access::kRead);
  });
  for_each_peer(stage, own, [&](std::size_t peer) {
    contributions[peer] = part_at(builder, stage, stage.group[peer], own);
    builder.await(stage.group[peer], contributions[peer]);
  });
  builder.reduce(contributions[own], contributions, stage.finishes);
}

void all_gather_in_memory(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t own = stage.position(builder.rank());
  const Range mine = part_at(builder, stage, builder.rank(), own);
  for_each_peer(stage, own,
                [&](std::size_t peer) { builder.signal(stage.group[peer], mine, Access::kRead); });
  builder.deliver(mine, stage.sink);
  for_each_peer(stage, own, [&](std::size_t peer) {
    const Range theirs = part_at(builder, stage, stage.group[peer], peer);
    builder.await(stage.group[peer], theirs);
    builder.deliver(theirs, stage.sink);
    builder.signal(stage.group[peer], theirs, Access::kWrite);
  });
  // The caller may overwrite the part only after all ranks have read it.
  for_each_peer(stage, own, [&](std::size_t peer) { builder.await(stage.group[peer], mine); });
}

// Each rank combines its part, copies the other ranks' results, and waits until all ranks have read
// its part. Flags take three trips.
StageCost phases_price(const HostLinks& links, double bytes) {
  const double local = links.largest_node();
  if (local == 1) return {};
  return {.wait_us = 3 * links.costs().memory.latency_us,
          .processor_us = links.flags_us(local, 3) + links.combine_us(local, local, bytes / local) +
                          links.memory().own_us(2 * (local - 1) * bytes)};
}

}  // namespace

constinit const IntraNodePhases kSharedDirect{.reduce_scatter = reduce_scatter_in_memory,
                                              .all_gather = all_gather_in_memory,
                                              .host_price = phases_price};

// The owner of a part writes the sum over all contributions. For n = 3, rank 1 does this:
//
//   part          0 | 1 | 2
//   rank 0          | * |           reads part 1 of all three buckets,
//   rank 1          | * |           writes the sum to part 1 of all three
//   rank 2          | * |
//
// Nothing is copied, and only the owner accesses a part between the two flags.
void append_shared_direct(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t own = stage.position(builder.rank());
  if (stage.size() == 1) return;
  for_each_peer(stage, own, [&](std::size_t peer) {
    builder.signal(stage.group[peer], part_at(builder, stage, builder.rank(), peer),
                   Access::kWrite);
  });
  std::vector<Range> contributions(stage.size());
  std::vector<Range> mirrors;
  contributions[own] = part_at(builder, stage, builder.rank(), own);
  for_each_peer(stage, own, [&](std::size_t peer) {
    contributions[peer] = part_at(builder, stage, stage.group[peer], own);
    mirrors.push_back(contributions[peer]);
    builder.await(stage.group[peer], contributions[peer]);
  });
  builder.reduce(contributions[own], contributions, stage.finishes, mirrors);
  for_each_peer(stage, own, [&](std::size_t peer) {
    builder.signal(stage.group[peer], contributions[peer], Access::kRead);
  });
  for_each_peer(stage, own, [&](std::size_t peer) {
    builder.await(stage.group[peer], part_at(builder, stage, builder.rank(), peer));
  });
}

}  // namespace kolo
