#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/goal.h"
#include "topology/process_grid.h"

namespace kolo {

/// A piece in a slot of its holder, with all that happens to it there.
struct Slice {
  using Ranks = std::vector<int>;

  Extent piece;
  int holder = 0;
  /// How it gets there: the holder receives it from `sender`, or sums `addends`; with neither, it
  /// packs its own contribution.
  std::optional<int> sender = {};
  /// Slices of which it is the sum; empty: the holder's own contribution.
  std::vector<std::optional<std::size_t>> addends = {};
  bool finishes = false;   ///< As a sum, it is complete.
  bool is_addend = false;  ///< Its holder, too, sums it.

  Ranks readers = {};       ///< Ranks of the holder's node that read it.
  Ranks recipients = {};    ///< Ranks of other nodes to which it is sent.
  bool to_readers = false;  ///< It is in the result of its readers.
  /// Its only reader offers the place in its result, and the holder puts it there: it is in no slot
  /// of the holder, but has one of the reader's.
  bool is_put = false;
  bool to_holder = false;  ///< It is in the result of its holder.

  std::size_t slot = 0;

  bool is_contribution() const { return !sender && addends.empty(); }
  /// Only its holder needs it.
  bool is_private() const { return readers.empty() && recipients.empty(); }
  int slot_owner() const { return is_put ? readers.front() : holder; }
};

/// From how many bytes on a contribution is lent to its readers, and the place of a result offered.
struct LeastLent {
  std::size_t mapped = 0;    ///< If it lies in the arena.
  std::size_t unmapped = 0;  ///< If it does not, and they can read it all the same.
};

/// The slices of a collective, in an order in which each comes after those that it is made of.
///
/// All ranks append their steps in this order, so that the flags of two ranks agree and nobody
/// waits in a circle. Each holder uses its slots in rotation. Either the slices of one node are
/// kept, whose ranks touch no others, or the slots of all ranks are counted, because they are alike
/// everywhere.
///
/// Threads: one. Cost: memory grows with the slices that the node holds.
class Slices {
 public:
  /// Without a node, slots are counted.
  Slices(const BucketLayout& layout, const ProcessGrid& grid, std::optional<int> node,
         const LeastLent& least_lent)
      : layout_(layout),
        grid_(grid),
        node_(node),
        least_lent_(least_lent),
        used_(static_cast<std::size_t>(grid.world_size())) {}

  /// The number by which others name it as an addend; of no use outside its holder's node.
  std::size_t add(Slice slice);
  /// Whether slices of this holder are kept.
  bool keeps(int holder) const { return node_ == grid_.node(holder); }
  /// Whether slices of this node's ranks are of interest.
  bool concerns(int node) const { return !node_ || node_ == node; }
  /// The same as `add`, for a slice with a slot that is not kept.
  void count(const Extent& piece, int holder) {
    slot_count_ = std::max(slot_count_, piece.count);
    most_used_ = std::max(most_used_, ++used_[static_cast<std::size_t>(holder)]);
  }
  /// Gives slots to all slices: each holder has `slots` of `count` elements, which exist `turns`
  /// times; see Schedule::staging_turns. Two turns are for slots that an iteration uses once.
  void give_slots(std::size_t slots, std::size_t count, std::uint32_t turns);

  const BucketLayout& layout() const { return layout_; }
  const ProcessGrid& grid() const { return grid_; }
  std::span<const Slice> kept() const { return kept_; }
  /// The most slots that one rank would use if it used none twice.
  std::size_t most_used() const { return most_used_; }

  std::size_t slots() const { return slots_; }
  /// Elements of the longest piece in a slot.
  std::size_t slot_count() const { return slot_count_; }
  std::uint32_t turns() const { return turns_; }
  /// Flags from one rank to another of the node, where there are most.
  std::uint32_t flags() const;

  /// Elements are cast on their way to slots and from them, so nothing is summed elsewhere.
  bool are_cast() const { return layout_.placement == Placement::kStaged; }
  bool needs_slot(const Slice& slice) const {
    return are_cast() || !slice.is_private() || slice.sender || slice.is_addend;
  }
  /// Its slot is one of a loan, for readers that read it where it is if they can.
  bool is_lent(const Slice& slice) const {
    return !are_cast() && slice.is_contribution() && !slice.readers.empty() && !slice.is_put &&
           bytes_of(slice) >= least_lent_.mapped;
  }
  /// Whether it is large enough to be put where it belongs, which has elements of this dtype.
  bool may_be_put(const Slice& slice) const {
    return !are_cast() && bytes_of(slice) >= least_lent_.mapped;
  }
  /// It may also be copied from or to private memory.
  bool is_for_copies(const Slice& slice) const {
    return slice.to_readers && slice.is_contribution() && bytes_of(slice) >= least_lent_.unmapped;
  }
  /// With two turns a holder need not know before the next iteration that its slot is read. What is
  /// lent is the caller's as soon as the iteration is over.
  bool may_read_later(const Slice& slice) const { return turns_ > 1 && !is_lent(slice); }
  /// Whether `reader` tells the holder that it has read the slice. A reader that may do so later
  /// need not if the holder reads something of it: then the holder hears that it has come so far.
  bool needs_reply(const Slice& slice, int reader) const {
    return !may_read_later(slice) || !told_.contains({reader, slice.holder});
  }

 private:
  std::size_t bytes_of(const Slice& slice) const {
    return slice.piece.count * size_of(layout_.dtype);
  }

  const BucketLayout& layout_;
  const ProcessGrid& grid_;
  std::optional<int> node_;
  LeastLent least_lent_;
  std::vector<Slice> kept_;
  std::vector<std::size_t> used_;  // slots, by holder
  std::size_t most_used_ = 0;
  std::set<std::pair<int, int>> told_;  // (holder, reader)
  std::size_t slots_ = 0;
  std::size_t slot_count_ = 0;
  std::uint32_t turns_ = 1;
};

/// The slice of a piece that one of `members`, ranks of one node, receives from `sender` for all of
/// them. Pieces of different contributors enter a node at different ranks.
Slice relay(const Extent& piece, int contributor, int sender, Slice::Ranks members);

/// Brings `slice` from its holder to all receivers: each node gets it once, from the holder. The
/// next node is first, so that not all holders send to the same one. A sum that one rank of the
/// node receives is put there.
void spread(Slices& slices, Slice slice, const RankRange& receivers);

/// Puts a contribution of `holder` where the other receivers, all of its node, offer to have it.
void put(Slices& slices, const Extent& piece, int holder, const RankRange& receivers);

/// The members of `ranks` in a node, ascending. The grid outlives them.
std::span<const int> members_of(const ProcessGrid& grid, int node, const RankRange& ranks);
/// The same but for `holder`.
Slice::Ranks others_of(const ProcessGrid& grid, int node, const RankRange& ranks, int holder);

/// Calls `visit(node, others)` for the nodes after `first`, and then for those before it, that have
/// members of `ranks` other than `holder`.
template <typename Visit>
void for_each_other_node(const ProcessGrid& grid, int first, const RankRange& ranks, int holder,
                         Visit visit) {
  // Pairs of ranks are many: they do not look at all nodes.
  const bool is_one = ranks.size() == 1;
  const int end = is_one ? 2 : grid.num_nodes();
  for (int step = 1; step < end; ++step) {
    const int node = is_one ? grid.node(ranks.front()) : (first + step) % grid.num_nodes();
    if (node == first) continue;
    Slice::Ranks others = others_of(grid, node, ranks, holder);
    if (!others.empty()) visit(node, std::move(others));
  }
}

}  // namespace kolo
