#include "comm/collective/algorithm.h"

namespace kolo {
namespace {

// Part k of the extent travels the ring once, growing at each rank, until rank k holds the whole
// sum; then the sums travel on to everybody. For n = 4, what rank p sends in round t:
//
//   reduce-scatter   p-1  p-2  p-3        all-gather   p  p-1  p-2
//   rank 1 holds     0+1  at the end: part 1 of ranks 2, 3, 0, 1 in this order
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
  // Two receive buffers: one fills while the other is added.
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

}  // namespace

const ScatterGather kRing{reduce_scatter, all_gather};

void append_ring(ScheduleBuilder& builder, const Stage& stage) {
  reduce_scatter(builder, stage);
  all_gather(builder, stage);
}

}  // namespace kolo
