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
#include "comm/schedule/collective_spec.h"
#include "topology/process_grid.h"

namespace kolo {

/// A piece in a slot of its holder: where it comes from and where it goes.
struct StagedChunk {
  using Ranks = std::vector<int>;

  Extent piece;
  int holder = 0;
  /// Source: the holder receives the piece from `sender`, or sums `addends`. Without either, it
  /// packs its own contribution.
  std::optional<int> sender = {};
  /// Indices of the chunks to sum; an empty entry stands for the holder's own contribution.
  std::vector<std::optional<std::size_t>> addends = {};
  bool finishes = false;   ///< The sum is complete.
  bool is_addend = false;  ///< The holder also uses it as an addend.

  Ranks readers = {};       ///< Ranks of the holder's node that read it.
  Ranks recipients = {};    ///< Ranks of other nodes to which it is sent.
  bool to_readers = false;  ///< It is part of the readers' result.
  /// The holder writes it directly into its only reader's result buffer; the slot belongs to the
  /// reader.
  bool is_put = false;
  bool to_holder = false;  ///< It is part of the holder's result.

  std::size_t slot = 0;

  bool is_contribution() const { return !sender && addends.empty(); }
  /// Whether only the holder needs it.
  bool is_private() const { return readers.empty() && recipients.empty(); }
  int slot_owner() const { return is_put ? readers.front() : holder; }
};

/// Smallest sizes in bytes at which a contribution is exposed to its readers, or a result buffer is
/// exposed to its writer.
struct LeastExposed {
  std::size_t mapped = 0;    ///< For memory in the arena.
  std::size_t unmapped = 0;  ///< For memory outside the arena that peers can read nevertheless.
};

/// The chunks of a collective, ordered so that each comes after the chunks it is made of.
///
/// All ranks append their steps in this order, so that the flags of two ranks match and no ranks
/// wait in a circle. Each holder uses its slots in rotation. There are two modes: given a node, the
/// chunks of its ranks are kept, and other ranks' chunks ignored; without a node, only slots are
/// counted, for all ranks, because all ranks need to agree on them.
///
/// Threads: one. Cost: memory grows with the chunks that the node holds.
class StagedChunks {
 public:
  /// Without `node`, slots are only counted.
  StagedChunks(const BucketLayout& layout, const ProcessGrid& grid, std::optional<int> node,
               const LeastExposed& least_exposed)
      : layout_(layout),
        grid_(grid),
        node_(node),
        least_exposed_(least_exposed),
        used_(static_cast<std::size_t>(grid.world_size())) {}

  /// Returns the index by which other chunks name it as an addend; valid only within its holder's
  /// node.
  std::size_t add(StagedChunk chunk);
  /// Whether chunks of this holder are kept.
  bool keeps(int holder) const { return node_ == grid_.node(holder); }
  /// Whether chunks held by ranks of this node are kept or counted.
  bool concerns(int node) const { return !node_ || node_ == node; }
  /// Counts the slot of a chunk that is not kept.
  void count(const Extent& piece, int holder) {
    slot_count_ = std::max(slot_count_, piece.count);
    most_used_ = std::max(most_used_, ++used_[static_cast<std::size_t>(holder)]);
  }
  /// Assigns slots to all chunks: each holder has `slots` slots of `count` elements, in `turns`
  /// copies; see Schedule::staging_turns. Two turns require that an iteration uses each slot once.
  void give_slots(std::size_t slots, std::size_t count, std::uint32_t turns);

  const BucketLayout& layout() const { return layout_; }
  const ProcessGrid& grid() const { return grid_; }
  std::span<const StagedChunk> kept() const { return kept_; }
  /// The most slots that one rank would use if it never reused one.
  std::size_t most_used() const { return most_used_; }

  std::size_t slots() const { return slots_; }
  /// Elements of the longest piece in a slot.
  std::size_t slot_count() const { return slot_count_; }
  std::uint32_t turns() const { return turns_; }
  /// The largest number of flags between any two ranks of the node.
  std::uint32_t flags() const;

  /// Whether elements are cast on their way to and from slots; then sums are made only in slots.
  bool are_cast() const { return layout_.placement == Placement::kStaged; }
  bool needs_slot(const StagedChunk& chunk) const {
    return are_cast() || !chunk.is_private() || chunk.sender || chunk.is_addend;
  }
  /// Whether its slot belongs to an exposed buffer: readers read the contribution in place if they
  /// can.
  bool is_exposed(const StagedChunk& chunk) const {
    return !are_cast() && chunk.is_contribution() && !chunk.readers.empty() && !chunk.is_put &&
           bytes_of(chunk) >= least_exposed_.mapped;
  }
  /// Whether it is large enough to be written directly to its destination, which must have the
  /// bucket's dtype.
  bool may_be_put(const StagedChunk& chunk) const {
    return !are_cast() && bytes_of(chunk) >= least_exposed_.mapped;
  }
  /// Whether it may also be copied from or to private memory.
  bool is_for_copies(const StagedChunk& chunk) const {
    return chunk.to_readers && chunk.is_contribution() &&
           bytes_of(chunk) >= least_exposed_.unmapped;
  }
  /// Whether readers may confirm in the next iteration. With two turns the holder reuses a slot
  /// only then; exposed memory belongs to the caller again as soon as the iteration ends.
  bool may_read_later(const StagedChunk& chunk) const { return turns_ > 1 && !is_exposed(chunk); }
  /// Whether `reader` tells the holder that it has read the chunk. If it may do so later, the
  /// message is not needed when the holder reads something of `reader`: that implies the progress.
  bool needs_reply(const StagedChunk& chunk, int reader) const {
    return !may_read_later(chunk) || !told_.contains({reader, chunk.holder});
  }

 private:
  std::size_t bytes_of(const StagedChunk& chunk) const {
    return chunk.piece.count * size_of(layout_.dtype);
  }

  const BucketLayout& layout_;
  const ProcessGrid& grid_;
  std::optional<int> node_;
  LeastExposed least_exposed_;
  std::vector<StagedChunk> kept_;
  std::vector<std::size_t> used_;  // slots, by holder
  std::size_t most_used_ = 0;
  std::set<std::pair<int, int>> told_;  // (holder, reader)
  std::size_t slots_ = 0;
  std::size_t slot_count_ = 0;
  std::uint32_t turns_ = 1;
};

/// The chunk that one of `members` (ranks of one node) receives from `sender` on behalf of all of
/// them. Pieces of different contributors enter a node at different ranks.
StagedChunk relay(const Extent& piece, int contributor, int sender, StagedChunk::Ranks members);

/// Sends `chunk` from its holder to all receivers; each node receives it once. The next node comes
/// first, so that holders do not all send to the same node. If one rank of the holder's node
/// receives a sum, the holder writes it directly to the destination.
void spread(StagedChunks& chunks, StagedChunk chunk, const RankRange& receivers);

/// Writes a contribution of `holder` directly into the results of the other receivers, all on its
/// node.
void put(StagedChunks& chunks, const Extent& piece, int holder, const RankRange& receivers);

/// The members of `ranks` in a node, ascending. The grid outlives them.
std::span<const int> members_of(const ProcessGrid& grid, int node, const RankRange& ranks);
/// As `members_of`, without `holder`.
StagedChunk::Ranks others_of(const ProcessGrid& grid, int node, const RankRange& ranks, int holder);

/// Calls `visit(node, others)` for each other node with members of `ranks` besides `holder`: first
/// the nodes after `first`, then the ones before it.
template <typename Visit>
void for_each_other_node(const ProcessGrid& grid, int first, const RankRange& ranks, int holder,
                         Visit visit) {
  // There are many pairs of ranks, so this case does not loop over all nodes.
  const bool is_one = ranks.size() == 1;
  const int end = is_one ? 2 : grid.num_nodes();
  for (int step = 1; step < end; ++step) {
    const int node = is_one ? grid.node(ranks.front()) : (first + step) % grid.num_nodes();
    if (node == first) continue;
    StagedChunk::Ranks others = others_of(grid, node, ranks, holder);
    if (!others.empty()) visit(node, std::move(others));
  }
}

}  // namespace kolo
