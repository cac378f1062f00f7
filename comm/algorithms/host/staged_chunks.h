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

/// A piece of a part in a staging slot of one rank (its holder), with source and destinations.
struct StagedChunk {
  using Ranks = std::vector<int>;

  Extent piece;
  int holder = 0;
  /// The rank from which the holder receives the piece. Without `sender` and `addends`, the piece
  /// is the holder's contribution.
  std::optional<int> sender = {};
  /// Indices of the chunks that the holder sums to make the piece. An empty entry stands for the
  /// holder's contribution.
  std::vector<std::optional<std::size_t>> addends = {};
  bool finishes = false;   ///< Whether the sum is complete, so that the scale applies.
  bool is_addend = false;  ///< Whether the holder uses the piece as an addend.

  Ranks readers = {};       ///< Ranks of the holder's node that read the piece.
  Ranks recipients = {};    ///< Ranks of other nodes to which the holder sends the piece.
  bool to_readers = false;  ///< Whether the piece belongs to the readers' result.
  /// Whether the holder writes the piece directly into the result buffer of its only reader. If so,
  /// the slot belongs to the reader.
  bool is_put = false;
  bool to_holder = false;  ///< Whether the piece belongs to the holder's result.

  std::size_t slot = 0;

  bool is_contribution() const { return !sender && addends.empty(); }
  /// Whether only the holder uses the piece.
  bool is_private() const { return readers.empty() && recipients.empty(); }
  int slot_owner() const { return is_put ? readers.front() : holder; }
};

/// Smallest sizes in bytes from which a contribution is exposed to its readers, or a result buffer
/// to its writer.
struct LeastExposed {
  std::size_t mapped = 0;    ///< Size for memory in the arena, which peers have mapped.
  std::size_t unmapped = 0;  ///< Size for other memory, which peers access by a system call.
};

/// The chunks of a collective. Every chunk comes after the chunks from which it is made.
///
/// All ranks append their steps in this order, so that the flags of two ranks match and ranks
/// cannot deadlock. Each holder uses its slots in rotation. There are two modes. With a node, only
/// the chunks held by ranks of that node are kept. Without a node, only the slots of all ranks are
/// counted, because all ranks must use equal slot numbers and sizes.
///
/// Threads: one. Cost: memory grows with the chunks that the node holds.
class StagedChunks {
 public:
  /// An empty `node` selects the mode that only counts slots.
  StagedChunks(const BucketLayout& layout, const ProcessGrid& grid, std::optional<int> node,
               const LeastExposed& least_exposed)
      : layout_(layout),
        grid_(grid),
        node_(node),
        least_exposed_(least_exposed),
        used_(static_cast<std::size_t>(grid.world_size())) {}

  /// Adds a chunk. Returns its index for the `addends` of later chunks; the index is valid only if
  /// the chunk is kept.
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
  /// Gives each rank that holds staged chunks `slots` slots of `count` elements, and assigns them
  /// to its chunks in rotation. Iterations take the `turns` copies of the slots alternately
  /// (Schedule::staging_turns). Before: with two copies, no two chunks of an iteration share a
  /// slot.
  void give_slots(std::size_t slots, std::size_t count, std::uint32_t turns);

  const BucketLayout& layout() const { return layout_; }
  const ProcessGrid& grid() const { return grid_; }
  std::span<const StagedChunk> kept() const { return kept_; }
  /// The largest number of slots of one rank if no slot were reused.
  std::size_t most_used() const { return most_used_; }

  std::size_t slots() const { return slots_; }
  /// Elements of a slot: those of the longest piece.
  std::size_t slot_count() const { return slot_count_; }
  std::uint32_t turns() const { return turns_; }
  /// The largest number of flags between any two ranks of the node.
  std::uint32_t flags() const;

  /// Whether copies to and from slots cast elements. If so, sums are made only in slots.
  bool are_cast() const { return layout_.placement == Placement::kStaged; }
  bool needs_slot(const StagedChunk& chunk) const {
    return are_cast() || !chunk.is_private() || chunk.sender || chunk.is_addend;
  }
  /// Whether the chunk is an exposed contribution, which readers read in place if they can.
  bool is_exposed(const StagedChunk& chunk) const {
    return !are_cast() && chunk.is_contribution() && !chunk.readers.empty() && !chunk.is_put &&
           bytes_of(chunk) >= least_exposed_.mapped;
  }
  /// Whether the holder may write the chunk directly into a reader's result buffer.
  bool may_be_put(const StagedChunk& chunk) const {
    return !are_cast() && bytes_of(chunk) >= least_exposed_.mapped;
  }
  /// Whether the exposed memory may also be private memory, which peers copy by a system call.
  bool is_for_copies(const StagedChunk& chunk) const {
    return chunk.to_readers && chunk.is_contribution() &&
           bytes_of(chunk) >= least_exposed_.unmapped;
  }
  /// Whether readers may confirm their read in the next iteration: with two turns the holder reuses
  /// the slot only after that. Exposed memory must be confirmed at once, because the caller may
  /// change it after the iteration.
  bool may_read_later(const StagedChunk& chunk) const { return turns_ > 1 && !is_exposed(chunk); }
  /// Whether `reader` must confirm to the holder that it has read the chunk. A late confirmation is
  /// omitted if the holder reads a chunk of `reader`, because the flag of that chunk implies it.
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
  std::vector<std::size_t> used_;  // number of used slots, by holder
  std::size_t most_used_ = 0;
  std::set<std::pair<int, int>> told_;  // (holder, reader) pairs of the kept chunks
  std::size_t slots_ = 0;
  std::size_t slot_count_ = 0;
  std::uint32_t turns_ = 1;
};

/// Makes the chunk that one of `members` (ranks of one node) receives from `sender` and that the
/// other members read. The receiving member depends on `contributor`, to share the work.
StagedChunk relay(const Extent& piece, int contributor, int sender, StagedChunk::Ranks members);

/// Adds `chunk`, and the chunks by which it reaches all receivers; each node receives it once. The
/// holder sends to the next node first, so that holders do not all send to the same node. A sum
/// whose only receiver is another rank of the holder's node is written into its result buffer.
void spread(StagedChunks& chunks, StagedChunk chunk, const RankRange& receivers);

/// Adds chunks by which `holder` writes its contribution directly into the result buffers of the
/// other receivers. All receivers must be on the holder's node.
void put(StagedChunks& chunks, const Extent& piece, int holder, const RankRange& receivers);

/// The ranks of `ranks` on `node`, ascending. The span refers to memory of `grid`.
std::span<const int> members_of(const ProcessGrid& grid, int node, const RankRange& ranks);
/// The ranks of `ranks` on `node` except `holder`, ascending.
StagedChunk::Ranks others_of(const ProcessGrid& grid, int node, const RankRange& ranks, int holder);

/// Calls `visit(node, others)` for each node except `first` that has ranks of `ranks` other than
/// `holder`. Visits the nodes after `first`, then the nodes before it.
template <typename Visit>
void for_each_other_node(const ProcessGrid& grid, int first, const RankRange& ranks, int holder,
                         Visit visit) {
  // The frequent case of a single rank needs no loop over all nodes.
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
