#include "comm/collective/algorithm.h"

namespace kolo {
namespace {

// Every rank owns the part at its position. All send their contribution for a part to its owner,
// who sums them in group order, rounds once and sends the result back. For n = 3:
//
//   part      0 | 1 | 2          rank 1 receives part 1 of ranks 0 and 2,
//   owner     0   1   2          sums a0 + a1 + a2, sends the sum to ranks 0 and 2
//
// The order of summation, and so every bit, is the same for any n, chunk and fusion limit.
Extent part(const ScheduleBuilder& builder, const Stage& stage, std::size_t index) {
  return part_of(stage.extent, stage.size(), index, builder.layout().dtype);
}

Range part_at(const ScheduleBuilder& builder, const Stage& stage, int rank, std::size_t index) {
  const Extent extent = part(builder, stage, index);
  return builder.bucket_of(rank, extent.offset, extent.count);
}

/// Calls visit(position) for every other position, starting after our own so that not everybody
/// begins with the same peer.
template <typename Visit>
void for_each_peer(const Stage& stage, std::size_t own, Visit visit) {
  for (std::size_t i = 1; i < stage.size(); ++i) visit((own + i) % stage.size());
}

/// The same for receives. Through staging memory messages pass one after the other, so what is sent
/// in one round must be received in the same round, or ranks wait in a circle:
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
  // The part is the caller's to overwrite only when nobody reads it any more.
  for_each_peer(stage, own, [&](std::size_t peer) { builder.await(stage.group[peer], mine); });
}

}  // namespace

const ScatterGather kDirect{reduce_scatter_by_message, all_gather_by_message};
const ScatterGather kSharedDirect{reduce_scatter_in_memory, all_gather_in_memory};

void append_direct(ScheduleBuilder& builder, const Stage& stage) {
  reduce_scatter_by_message(builder, stage);
  all_gather_by_message(builder, stage);
}

}  // namespace kolo
