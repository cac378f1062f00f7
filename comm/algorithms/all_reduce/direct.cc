#include <algorithm>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/algorithms/compile_options.h"
#include "topology/node_costs.h"

namespace kolo {
namespace {

// Every rank owns the part at its position. All ranks send their contribution to a part to its
// owner, which sums in group order, rounds once and sends the result back. For n = 3:
//
//   part      0 | 1 | 2          rank 1 receives part 1 of ranks 0 and 2,
//   owner     0   1   2          sums a0 + a1 + a2, sends the sum to ranks 0 and 2
//
// The order of summation, and so every bit, does not depend on chunks and buckets.
/// Calls visit(position) for every peer, in the order of receives. Device messages share a ring of
/// staging memory, so a rank must receive in the round in which its peer sends, to avoid deadlock:
///
///   round i     rank p sends to p + i and receives from p - i
template <typename Visit>
void for_each_source(const ScheduleBuilder& builder, const Stage& stage, std::size_t own,
                     Visit visit) {
  if (builder.layout().memory == MemoryKind::kHost) return for_each_peer(stage, own, visit);
  for (std::size_t i = 1; i < stage.size(); ++i) visit((own + stage.size() - i) % stage.size());
}

void reduce_scatter_by_message(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t own = stage.position(builder.rank());
  const Range mine = part_at(builder, stage, builder.rank(), own);
  if (stage.size() == 1) return;
  std::vector<Range> contributions(stage.size(), mine);
  for_each_peer(stage, own, [&](std::size_t peer) {
    builder.send(stage.group[peer], part_at(builder, stage, builder.rank(), peer));
  });
  for_each_source(builder, stage, own, [&](std::size_t peer) {
    contributions[peer] = builder.scratch(mine.count);
    builder.recv(stage.group[peer], contributions[peer]);
  });
  builder.reduce(mine, contributions, stage.finishes);
}

void all_gather_by_message(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t own = stage.position(builder.rank());
  const Range mine = part_at(builder, stage, builder.rank(), own);
  builder.deliver(mine, stage.sink);
  for_each_peer(stage, own, [&](std::size_t peer) { builder.send(stage.group[peer], mine); });
  for_each_source(builder, stage, own, [&](std::size_t peer) {
    const Range theirs = part_at(builder, stage, builder.rank(), peer);
    builder.recv(stage.group[peer], theirs);
    builder.deliver(theirs, stage.sink);
  });
}

/// Whether ranks sum in mapped memory: a host bucket on a single node.
bool is_mapped(const CompileContext& context) {
  return context.grid.num_nodes() == 1 && context.layout.memory == MemoryKind::kHost;
}

bool is_in_place(const CompileContext& context) {
  return context.layout.placement == Placement::kInPlace;
}

void append(ScheduleBuilder& builder, const std::vector<Stage>& stages,
            const CompileContext& context) {
  if (!is_mapped(context)) return append_by_messages(builder, stages, append_direct, 1);
  if (!is_in_place(context)) {
    return append_windowed_direct(builder, stages, context.options.window);
  }
  for (const Stage& stage : stages) {
    builder.next_chunk();
    append_shared_direct(builder, stage);
  }
}

// A bucket in place is one piece: nothing is packed or sent, so chunks would overlap nothing.
std::optional<std::size_t> piece_bytes(const CompileContext& context) {
  if (!is_mapped(context)) return std::nullopt;
  const CompileOptions& options = context.options;
  const std::size_t bytes = context.layout.bytes();
  if (is_in_place(context)) return std::max<std::size_t>(bytes, 1);
  const std::size_t slot =
      bytes <= options.cached_bytes ? options.cached_slot_bytes : options.slot_bytes;
  return std::min({options.chunk_bytes, options.slot_bytes, slot});
}

// Each rank reads its part of all buckets and writes the sum to all buckets. Flags take one trip
// before and one trip after this.
StageCost price_in_memory(const HostLinks& links, double bytes) {
  const double ranks = links.ranks();
  return {.wait_us = 2 * links.costs().memory.latency_us,
          .processor_us = links.flags_us(ranks, 2) + links.costs().step_us +
                          links.memory().own_us(ranks * 2 * bytes)};
}

StageCost price(const HostLinks& links, double bytes) {
  const ProcessGrid& grid = links.grid();
  if (grid.num_nodes() == 1) return price_in_memory(links, bytes);
  const double ranks = links.ranks();
  const double part = bytes / ranks;
  StageCost slowest;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const auto local = static_cast<double>(grid.ranks_of_node(node).size());
    const double remote = ranks - local;
    const double local_messages = local * (local - 1);
    StageCost phase = links.messages(2 * remote);
    phase.link_us = phase.one_way_us = links.link_us(local * remote * part);
    phase.processor_us += links.flags_us(local, 1) +
                          links.memory().own_us(3 * local_messages * part) +
                          links.memory().shared_us(local_messages * part);
    StageCost both = 2.0 * phase;  // one for the reduce-scatter, one for the all-gather
    both.processor_us += links.combine_us(local, ranks, part);
    slowest = slower(slowest, both);
  }
  const std::vector<double> shares = node_shares(links.costs(), grid.num_nodes());
  if (links.largest_node() == 1 && !shares.empty()) {
    slowest.link_us = slowest.one_way_us = bytes * link_us_per_byte(links.costs(), shares);
  }
  return slowest;
}

// On a single node, parts owned by peers pass through slots, which are written, read, overwritten
// with the sum, and read again. Tensors that do not fit in the cache evict the slots. With a cast,
// the own part also passes through a slot, so that it is rounded like the others.
StageCost packing_price(const HostLinks& links, double bytes, Packing packing) {
  if (packing == Packing::kNone || links.grid().num_nodes() > 1) {
    return links.packing(bytes, packing);
  }
  const NodeMemory& memory = links.memory();
  const double slot_us = std::max(1 / links.costs().memory.slot_bytes_per_us, memory.own_us(4));
  const double own_us = packing == Packing::kCast ? memory.own_us(2) : 0;
  return {.processor_us =
              2 * links.costs().step_us + ((links.largest_node() - 1) * slot_us + own_us) * bytes};
}

}  // namespace

void append_direct(ScheduleBuilder& builder, const Stage& stage) {
  reduce_scatter_by_message(builder, stage);
  all_gather_by_message(builder, stage);
}

constinit const FlatAllReduce all_reduce::direct{.name = "direct",
                                                 .memories = {.host = true, .device = true},
                                                 .auto_choice = {.host = true},
                                                 .sums_in_one_place = true,
                                                 .maps_memory = true,
                                                 .takes_shares = true,
                                                 .owns_parts = true,
                                                 .exchange = append_direct,
                                                 .phases = &kSharedDirect,
                                                 .append = append,
                                                 .piece_bytes = piece_bytes,
                                                 .price = price,
                                                 .packing_price = packing_price};

}  // namespace kolo
