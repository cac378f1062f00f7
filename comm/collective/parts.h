#pragma once

#include <cstddef>

#include "comm/collective/algorithm.h"

namespace kolo {

/// Part `index` of the stage's extent, in the bucket of `rank`: its node's share, if nodes have
/// shares and the group has one rank of each.
inline Range part_at(const ScheduleBuilder& builder, const Stage& stage, int rank,
                     std::size_t index) {
  const DType dtype = builder.layout().dtype;
  const Extent part = stage.node_shares.size() == stage.size()
                          ? share_of(stage.extent, stage.node_shares, index, dtype)
                          : part_of(stage.extent, stage.size(), index, dtype);
  return builder.bucket_of(rank, part.offset, part.count);
}

/// Calls visit(position) for every other position, starting after our own so that not everybody
/// begins with the same peer.
template <typename Visit>
void for_each_peer(const Stage& stage, std::size_t own, Visit visit) {
  for (std::size_t i = 1; i < stage.size(); ++i) visit((own + i) % stage.size());
}

/// Packs the parts of a stage, unless the bucket is in place, in the order in which this rank sends
/// them: after its own part that of the next rank (1) or of the one before (-1). Its own comes
/// last.
inline void load_parts(ScheduleBuilder& builder, const Stage& stage, int send_order) {
  const std::size_t own = stage.position(builder.rank());
  const std::size_t stride = send_order > 0 ? 1 : stage.size() - 1;
  for (std::size_t i = 1; i <= stage.size(); ++i) {
    const std::size_t owner = (own + i * stride) % stage.size();
    builder.load(part_at(builder, stage, builder.rank(), owner));
  }
}

}  // namespace kolo
