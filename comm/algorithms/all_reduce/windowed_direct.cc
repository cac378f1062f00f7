#include <algorithm>

#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// One chunk of a bucket in the caller's tensors, which passes through one slot of every rank's
// staging memory. A slot holds the chunk except for the part that the slot's rank sums, which stays
// in the tensors. For n = 3, rank 1 does this:
//
//   part            0 | 1 | 2
//   user of rank 1  a |   | c       packs a and c into its slot, tells ranks 0 and 2
//   slot of rank 0    | * |         reads part 1 there and in its own tensors,
//   user of rank 1    | * |         writes the sum to all three places, tells ranks 0 and 2
//   slot of rank 2    | * |
//   slot of rank 1  a |   | c       when told by ranks 0 and 2, unpacks their sums and packs the
//                                    next chunk for this slot, in one pass
//
// If the tensors have another dtype, part 1 also passes through the slot of rank 1, and packing is
// a separate pass. Out of place, contributions are read from the input and results are written to
// the output; a single rank copies its part through the slot.
class Chunk {
 public:
  Chunk(ScheduleBuilder& builder, const Stage& stage, const Range& slot)
      : builder_(builder), stage_(stage), slot_(slot), own_(stage.position(builder.rank())) {}

  /// Appends steps that pack the parts that peers sum.
  void pack() {
    for_each_peer(stage_, own_, [&](std::size_t peer) {
      builder_.move(in_slot(peer), input(peer));
      hand_over(peer);
    });
  }

  /// Appends steps that sum this rank's part.
  void sum() {
    if (is_through_slot()) {
      builder_.move(in_slot(own_), input(own_));
      sum(in_slot(own_), in_slot(own_));
      builder_.move(in_tensors(own_), in_slot(own_));
    } else {
      sum(in_tensors(own_), input(own_));
    }
  }

  /// Appends steps that unpack the parts that peers have summed.
  void unpack() {
    for_each_peer(stage_, own_, [&](std::size_t peer) {
      await_sum(peer);
      builder_.move(in_tensors(peer), in_slot(peer));
    });
  }

  /// Appends steps that unpack this chunk and pack the `next` chunk of the same slot.
  void exchange(Chunk& next) {
    for_each_peer(stage_, own_, [&](std::size_t peer) {
      await_sum(peer);
      if (!is_through_slot() && in_slot(peer) == next.in_slot(peer)) {
        builder_.exchange(in_tensors(peer), in_slot(peer), next.input(peer));
      } else {
        builder_.move(in_tensors(peer), in_slot(peer));
        builder_.move(next.in_slot(peer), next.input(peer));
      }
      next.hand_over(peer);
    });
  }

 private:
  /// Whether the part that this rank sums passes through its slot.
  bool is_through_slot() const {
    return builder_.layout().placement == Placement::kStaged ||
           (stage_.size() == 1 && builder_.layout().out_of_place);
  }

  /// Signals `peer` that its part is packed, and awaits the part that `peer` packs for this rank.
  void hand_over(std::size_t peer) {
    builder_.signal(stage_.group[peer], in_slot(peer), Access::kWrite);
    builder_.await(stage_.group[peer], in_slot_of(peer));
  }

  void sum(const Range& mine, const Range& contribution) {
    if (stage_.size() == 1) return;
    std::vector<Range> contributions(stage_.size(), contribution);
    std::vector<Range> mirrors;
    for_each_peer(stage_, own_, [&](std::size_t peer) {
      contributions[peer] = in_slot_of(peer);
      mirrors.push_back(contributions[peer]);
    });
    builder_.reduce(mine, contributions, stage_.finishes, mirrors);
    for_each_peer(stage_, own_, [&](std::size_t peer) {
      builder_.signal(stage_.group[peer], contributions[peer], Access::kRead);
    });
  }

  void await_sum(std::size_t peer) { builder_.await(stage_.group[peer], in_slot(peer)); }

  Extent part(std::size_t index) const {
    return part_of(stage_.extent, stage_.size(), index, builder_.layout().dtype);
  }
  Range in_tensors(std::size_t index) const {
    return builder_.home(part(index).offset, part(index).count);
  }
  Range input(std::size_t index) const {
    return builder_.input(part(index).offset, part(index).count);
  }
  Range in_slot(int rank, std::size_t index) const {
    return {rank, Region::kStaging, slot_.offset + part(index).offset - stage_.extent.offset,
            part(index).count};
  }
  /// Part `index` in this rank's slot.
  Range in_slot(std::size_t index) const { return in_slot(builder_.rank(), index); }
  /// This rank's part in the slot of `peer`.
  Range in_slot_of(std::size_t peer) const { return in_slot(stage_.group[peer], own_); }

  ScheduleBuilder& builder_;
  const Stage& stage_;
  const Range& slot_;
  const std::size_t own_;
};

}  // namespace

void append_windowed_direct(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                            std::size_t window) {
  builder.forgo_bucket();
  std::size_t longest = 0;
  for (const Stage& stage : stages) longest = std::max(longest, stage.extent.count);
  std::vector<Range> slots;
  while (slots.size() < std::min(window, stages.size())) slots.push_back(builder.staging(longest));
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    chunks.emplace_back(builder, stages[i], slots[i % slots.size()]);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) chunks[i].pack();
  // The builder orders packing after unpacking of the same slot, because their ranges overlap.
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].sum();
    if (i + slots.size() < chunks.size()) {
      chunks[i].exchange(chunks[i + slots.size()]);
    } else {
      chunks[i].unpack();
    }
  }
}

}  // namespace kolo
