#include "comm/collective/parts.h"

namespace kolo {

// Everybody reads everybody: a rank lays out a copy of its contribution, tells all, and sums all
// copies in group order. Ranks of the same node read the copy where it lies, others get it by
// message. For nodes {0, 1} and {2}, what rank 1 does:
//
//   staging of rank 0   a0 a1 a2      flag from rank 0, read in place
//   staging of rank 1   b0 b1 b2      own
//   scratch             c0 c1 c2      message from rank 2
//
// One trip, where owners of parts need two. A peer may read the copy after its rank has finished;
// hence two copies, used in turn: whoever has told us of its next iteration has read the last.
void append_flat(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid) {
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
  // Tensors of another dtype are written from the rounded sum.
  const Range sum = placement == Placement::kStaged ? builder.scratch(copy.count) : home;
  if (stage.size() == 1) {
    builder.move(home, copy);
    return;
  }
  builder.reduce(sum, contributions, stage.finishes);
  if (sum != home) builder.move(home, sum);
}

}  // namespace kolo
