#include "comm/collective/parts.h"

namespace kolo {
namespace {

// Every rank owns the part at its position. All send their contribution for a part to its owner,
// who sums them in group order, rounds once and sends the result back. For n = 3:
//
//   part      0 | 1 | 2          rank 1 receives part 1 of ranks 0 and 2,
//   owner     0   1   2          sums a0 + a1 + a2, sends the sum to ranks 0 and 2
//
// The order of summation, and so every bit, is the same for any n, chunk and fusion limit.
/// `for_each_peer` for receives. Through staging memory messages pass one after the other, so what
/// is sent in one round must be received in the same round, or ranks wait in a circle:
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

}  // namespace

const ScatterGather kDirect{reduce_scatter_by_message, all_gather_by_message};

void append_direct(ScheduleBuilder& builder, const Stage& stage) {
  reduce_scatter_by_message(builder, stage);
  all_gather_by_message(builder, stage);
}

}  // namespace kolo
