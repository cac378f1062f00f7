#include "comm/algorithms/host/staged_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/algorithms/chunking.h"
#include "comm/base/contains.h"
#include "comm/schedule/exposed_buffer.h"

namespace kolo {
namespace {

/// Appends the steps of the builder's rank for the chunks of its node. Before: `give_slots`.
class Writer {
 public:
  Writer(ScheduleBuilder& builder, const StagedChunks& chunks)
      : builder_(builder), chunks_(chunks) {}

  void append() {
    builder_.forgo_bucket();
    builder_.set_staging_turns(chunks_.turns());
    builder_.reserve_flags(chunks_.flags());
    for (std::size_t i = 0; i < chunks_.slots(); ++i) {
      ranges_.push_back(builder_.exposure_slot(chunks_.slot_count()));
    }
    for (const StagedChunk& chunk : chunks_.kept()) append(chunk);
  }

 private:
  void append(const StagedChunk& chunk) {
    if (chunk.is_put) {
      put(chunk);
    } else if (chunk.holder == builder_.rank()) {
      hold(chunk);
    } else if (contains(chunk.readers, builder_.rank())) {
      builder_.await(chunk.holder, in_slot(chunk));
      if (chunk.to_readers) builder_.move(home(chunk), in_slot(chunk));
    }
    if (chunk.to_readers && !chunk.is_put) {
      for (int reader : chunk.readers) reply(chunk, reader);
    }
    for (const auto& addend : chunk.addends) {
      if (addend) read_by(chunk.holder, chunks_.kept()[*addend]);
    }
  }

  void put(const StagedChunk& chunk) {
    const int reader = chunk.readers.front();
    if (reader == builder_.rank()) {
      builder_.expose_result(in_slot(chunk), chunks_.is_for_copies(chunk));
      builder_.signal(chunk.holder, in_slot(chunk), Access::kWrite);
      builder_.await(chunk.holder, in_slot(chunk));
      builder_.move(home(chunk), in_slot(chunk));
    } else if (chunk.holder == builder_.rank()) {
      builder_.await(reader, in_slot(chunk));
      if (chunk.is_contribution()) {
        builder_.move(in_slot(chunk), input(chunk));
      } else {
        sum(chunk, in_slot(chunk));
      }
      builder_.signal(reader, in_slot(chunk), Access::kRead);
    }
  }

  void hold(const StagedChunk& chunk) {
    if (chunk.sender) {
      builder_.recv(*chunk.sender, in_slot(chunk));
    } else if (!chunk.addends.empty()) {
      sum(chunk, chunks_.needs_slot(chunk) ? in_slot(chunk) : home(chunk));
    } else if (chunks_.is_exposed(chunk)) {
      builder_.expose_input(in_slot(chunk), chunks_.is_for_copies(chunk));
    } else if (chunks_.needs_slot(chunk)) {
      builder_.move(in_slot(chunk), input(chunk));
    }
    for (int reader : chunk.readers) builder_.signal(reader, in_slot(chunk), Access::kRead);
    for (int recipient : chunk.recipients) builder_.send(recipient, in_slot(chunk));
    if (!chunk.to_holder) return;
    if (chunk.is_contribution() && !chunks_.are_cast()) {
      if (builder_.layout().out_of_place) builder_.move(home(chunk), input(chunk));
    } else if (chunks_.needs_slot(chunk)) {
      builder_.move(home(chunk), in_slot(chunk));
    }
  }

  void sum(const StagedChunk& chunk, const Range& target) {
    std::vector<Range> sources;
    for (const auto& addend : chunk.addends) {
      sources.push_back(addend ? in_slot(chunks_.kept()[*addend]) : own_addend(chunk, target));
    }
    builder_.reduce(target, std::move(sources), chunk.finishes);
  }

  /// The holder's contribution to a sum. If it must be cast, it is first moved to `target`.
  Range own_addend(const StagedChunk& chunk, const Range& target) {
    if (!chunks_.are_cast()) return input(chunk);
    builder_.move(target, input(chunk));
    return target;
  }

  /// Appends the confirmation of `adder`, which has read the chunk as an addend.
  void read_by(int adder, const StagedChunk& chunk) {
    if (contains(chunk.readers, adder)) reply(chunk, adder);
  }

  void reply(const StagedChunk& chunk, int reader) {
    if (!chunks_.needs_reply(chunk, reader)) return;
    if (reader == builder_.rank()) {
      builder_.signal(chunk.holder, in_slot(chunk), Access::kWrite);
    } else if (chunk.holder != builder_.rank()) {
      return;
    } else if (chunks_.may_read_later(chunk)) {
      builder_.await_previous(reader, in_slot(chunk));
    } else {
      builder_.await(reader, in_slot(chunk));
    }
  }

  Range in_slot(const StagedChunk& chunk) const {
    const Range& slot = ranges_[chunk.slot];
    const Extent& piece = chunk.piece;
    if (chunk.is_put)
      return builder_.exposed_result(chunk.slot_owner(), piece.offset, piece.count, slot);
    if (chunks_.is_exposed(chunk)) {
      return builder_.exposed_input(chunk.holder, piece.offset, piece.count, slot);
    }
    // Elements are stored after the note, as for an exposed buffer, because the memory of notes
    // must hold only notes.
    return ExposedBuffer::elements({chunk.holder, Region::kStaging, 0, piece.count, slot.offset},
                                   builder_.layout().dtype);
  }
  Range home(const StagedChunk& chunk) const {
    return builder_.home(chunk.piece.offset, chunk.piece.count);
  }
  Range input(const StagedChunk& chunk) const {
    return builder_.input(chunk.piece.offset, chunk.piece.count);
  }

  ScheduleBuilder& builder_;
  const StagedChunks& chunks_;
  std::vector<Range> ranges_;  // slots
};

/// The ranks among which a part is cut into shares; a single rank owns the whole part.
std::vector<int> owners_of(const CollectiveSpec::Part& part, const ProcessGrid& grid) {
  const int contributor = part.contributors.front();
  if (part.sums()) {
    if (part.receivers.size() > 1) return {part.receivers.front()};
    return {part.contributors.begin(), part.contributors.end()};
  }
  std::vector<int> owners;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::span<const int> members = members_of(grid, node, part.receivers);
    if (!members.empty() && node != grid.node(contributor)) owners.push_back(members.front());
  }
  return owners.empty() ? std::vector{part.receivers.front()} : owners;
}

/// The elements that each rank of one node would copy if receivers copied all data. A rank that
/// would copy less than others can write contributions directly into result buffers.
class CopyLoad {
 public:
  CopyLoad(const CollectiveSpec& spec, const BucketLayout& layout, const ProcessGrid& grid)
      : ranks_(static_cast<std::size_t>(grid.world_size())) {
    for (const CollectiveSpec::Part& part : spec.parts()) {
      if (part.sums() || part.contributors.empty()) continue;
      const auto count = static_cast<double>(part.extent.count);
      for (const int receiver : part.receivers) {
        const bool is_own = receiver == part.contributors.front();
        Elements& elements = ranks_[static_cast<std::size_t>(receiver)];
        if (!is_own) elements.received += count;
        if (!is_own || layout.out_of_place) elements.copied += count;
      }
    }
    for (const Elements& elements : ranks_) mean_ += elements.copied / grid.world_size();
  }

  /// The fraction of a part that its contributor writes directly, so that all ranks copy equally
  /// much. Among n ranks, the root of a broadcast writes 1 / n, and contributors to a gather write
  /// everything.
  double put_share(const CollectiveSpec::Part& part) const {
    const int contributor = part.contributors.front();
    if (of(contributor).copied >= mean_) return 0;
    double share = 1;
    for (const int receiver : part.receivers) {
      if (receiver == contributor) continue;
      share = std::min(share, (of(receiver).copied - mean_) / of(receiver).received);
    }
    return std::max(share, 0.0);
  }

 private:
  struct Elements {
    double copied = 0;
    double received = 0;  ///< Elements from other ranks.
  };

  const Elements& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Elements> ranks_;
  double mean_ = 0;  // mean of `copied`
};

void append_filled(const SumShare& share, std::vector<SumShare>& shares) {
  if (share.extent.count > 0) shares.push_back(share);
}

/// Appends a part that is not summed. If the contributor writes at least `least_put` bytes
/// directly, the part is cut in two: the copied elements and the directly written ones.
void append_moved(const CollectiveSpec::Part& part, const BucketLayout& layout, double put_share,
                  std::size_t least_put, std::vector<SumShare>& shares) {
  SumShare copied{part, part.receivers.front(), 0};
  const auto unit = static_cast<double>(kWireAlignment / size_of(layout.dtype));
  const auto put = static_cast<std::size_t>(
      std::floor(static_cast<double>(part.extent.count) * put_share / unit) * unit);
  if (put * size_of(layout.dtype) < std::max<std::size_t>(least_put, 1)) {
    return append_filled(copied, shares);
  }
  SumShare rest = copied;
  rest.is_put = true;
  rest.extent.offset += part.extent.count - put;
  rest.extent.count = put;
  copied.extent.count -= put;
  append_filled(copied, shares);
  append_filled(rest, shares);
}

// Makes the chunks of a rank's node. An all-to-all and a reduce-scatter have a move for every pair
// of ranks. Therefore a rank does not store all moves: it counts the slots of all ranks with a few
// moves at a time, and keeps only the moves of its node.
class StagedPlan {
 public:
  StagedPlan(int rank, const CompileContext& context, const ChunkPolicy& rules)
      : spec_(context.spec),
        layout_(context.layout),
        grid_(context.grid),
        rules_(rules),
        node_(context.grid.node(rank)),
        least_exposed_(least_exposed(context.options.link_costs)) {
    if (rules.puts) load_.emplace(spec_, layout_, grid_);
    // Inside a node each piece costs flags, so pieces are larger.
    const std::size_t memory = grid_.num_nodes() == 1
                                   ? context.options.slot_bytes
                                   : slot_bytes(layout_.bytes(), context.options);
    const std::size_t in_a_round = rules.slots_in_turns
                                       ? *rules.slots_in_turns
                                       : std::max<std::size_t>(1, counted().most_used());
    piece_bytes_ = std::min(memory / in_a_round, rules.most_piece_bytes);
    const StagedChunks all = counted();
    make_those_of_node();
    const std::size_t slot = std::max<std::size_t>(1, all.slot_count() * size_of(layout_.dtype));
    if (all.most_used() * slot <= memory) {
      // Pieces stay in their slots until the next iteration has begun on all ranks; see
      // Schedule::staging_turns.
      chunks_.give_slots(all.most_used(), all.slot_count(), 2);
    } else {
      const std::size_t most = context.options.window * std::max(in_a_round, memory / slot);
      chunks_.give_slots(std::min(all.most_used(), most), all.slot_count(), 1);
    }
  }

  const StagedChunks& chunks() const { return chunks_; }

 private:
  int distance(const SumShare& share, int contributor) const {
    const int ranks = grid_.world_size();
    return 1 + (share.adder - contributor + ranks - 1) % ranks;
  }

  bool is_near(const RankRange& ranks) const { return !members_of(grid_, node_, ranks).empty(); }

  /// Appends the non-empty shares of a part.
  void append_shares(const CollectiveSpec::Part& part, std::vector<SumShare>& shares) const {
    if (part.receivers.empty() || part.contributors.empty()) return;
    if (!rules_.in_shares) {
      const double put_share = load_ && !part.sums() ? load_->put_share(part) : 0;
      // Below this size, a copy through a slot is as fast.
      const std::size_t least_put = layout_.in_arenas
                                        ? least_exposed_.mapped
                                        : std::max(least_exposed_.mapped, least_exposed_.unmapped);
      return append_moved(part, layout_, put_share, least_put, shares);
    }
    const std::vector<int> owners = owners_of(part, grid_);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      SumShare share{part, owners[i], i};
      share.extent = part_of(part.extent, owners.size(), i, layout_.dtype);
      append_filled(share, shares);
    }
  }

  /// Counts the slots that all ranks would use if no slot were reused.
  StagedChunks counted() const {
    StagedChunks chunks(layout_, grid_, std::nullopt, least_exposed_);
    std::vector<SumShare> of_part, shares;
    std::vector<Move> moves;
    const auto count = [&] {
      append_rounds(chunks, shares, moves);
      shares.clear();
      moves.clear();
    };
    for (const CollectiveSpec::Part& part : spec_.parts()) {
      of_part.clear();
      append_shares(part, of_part);
      for (const SumShare& share : of_part) {
        for (const int contributor : share.contributors) {
          moves.push_back({distance(share, contributor), shares.size(), contributor});
        }
        shares.push_back(share);
        if (moves.size() >= static_cast<std::size_t>(grid_.world_size())) count();
      }
    }
    count();
    return chunks;
  }

  void make_those_of_node() {
    std::vector<SumShare> shares;
    for (const CollectiveSpec::Part& part : spec_.parts()) {
      if (is_near(part.contributors) || is_near(part.receivers)) append_shares(part, shares);
    }
    std::vector<Move> moves;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const bool takes_all = !shares[i].sums() || is_near(RankRange::one(shares[i].adder));
      for (const int contributor : shares[i].contributors) {
        if (!takes_all && !is_near(RankRange::one(contributor))) continue;
        moves.push_back({distance(shares[i], contributor), i, contributor});
      }
    }
    // Moves are already sorted by share, and `by_number` is stable.
    moves = by_number(by_number(std::move(moves), &Move::contributor), &Move::distance);
    if (!rules_.by_distance) return append_rounds(chunks_, shares, moves);
    for (auto begin = moves.begin(); begin != moves.end();) {
      std::vector<SumShare> of_phase;
      auto end = begin;
      for (; end != moves.end() && end->distance == begin->distance; ++end) {
        of_phase.push_back(shares[std::exchange(end->share, of_phase.size())]);
      }
      append_rounds(chunks_, of_phase, std::span(begin, end));
      begin = end;
    }
  }

  /// Sorts stably by a field whose values are at most the number of ranks.
  std::vector<Move> by_number(std::vector<Move> moves, int Move::*number) const {
    std::vector<std::size_t> next(static_cast<std::size_t>(grid_.world_size()) + 2);
    for (const Move& move : moves) ++next[static_cast<std::size_t>(move.*number) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<Move> sorted(moves.size());
    for (const Move& move : moves) sorted[next[static_cast<std::size_t>(move.*number)]++] = move;
    return sorted;
  }

  std::size_t pieces_of(const SumShare& share) const {
    return chunk_count(share.extent, layout_.dtype, piece_bytes_);
  }

  /// Piece number `round` of the share; empty if the share has fewer pieces.
  Extent piece(const SumShare& share, std::size_t round) const {
    const std::size_t count = pieces_of(share);
    return round < count ? part_of(share.extent, count, round, layout_.dtype) : Extent{};
  }

  void append_rounds(StagedChunks& chunks, std::span<const SumShare> shares,
                     std::span<const Move> moves) const {
    std::size_t rounds = 0;
    for (const SumShare& share : shares) rounds = std::max(rounds, pieces_of(share));
    std::vector<Extent> pieces(shares.size());
    std::vector<Move> moves_of_round;
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < shares.size(); ++i) pieces[i] = piece(shares[i], round);
      moves_of_round.clear();
      for (const Move& move : moves) {
        if (pieces[move.share].count > 0) moves_of_round.push_back(move);
      }
      rules_.append_round(chunks, {.shares = shares, .pieces = pieces, .moves = moves_of_round});
    }
  }

  const CollectiveSpec& spec_;
  const BucketLayout& layout_;
  const ProcessGrid& grid_;
  const ChunkPolicy& rules_;
  int node_;
  LeastExposed least_exposed_;
  std::optional<CopyLoad> load_;
  // Unlimited at first, so that each share is one piece while slots are counted.
  std::size_t piece_bytes_ = std::numeric_limits<std::size_t>::max() / 2;
  StagedChunks chunks_{layout_, grid_, node_, least_exposed_};
};

}  // namespace

LeastExposed least_exposed(const LinkCosts& costs) {
  const MemoryCost& memory = costs.memory;
  return {.mapped = static_cast<std::size_t>(2 * memory.latency_us * memory.slot_bytes_per_us),
          .unmapped = static_cast<std::size_t>(costs.private_read_us * memory.shared_bytes_per_us)};
}

std::size_t slot_bytes(std::size_t bytes, const CompileOptions& options) {
  return bytes <= options.cached_bytes ? options.cached_slot_bytes : options.slot_bytes;
}

void append_staged_chunks(ScheduleBuilder& builder, const CompileContext& context,
                          const ChunkPolicy& rules) {
  const StagedPlan plan(builder.rank(), context, rules);
  Writer(builder, plan.chunks()).append();
}

}  // namespace kolo
