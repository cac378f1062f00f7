#include "comm/algorithms/host/slice_plan.h"

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
#include "comm/schedule/loan.h"

namespace kolo {
namespace {

/// Appends the steps of the builder's rank for the slices of its node, which have slots.
class Writer {
 public:
  Writer(ScheduleBuilder& builder, const Slices& slices) : builder_(builder), slices_(slices) {}

  void append() {
    builder_.forgo_bucket();
    builder_.set_staging_turns(slices_.turns());
    builder_.reserve_flags(slices_.flags());
    for (std::size_t i = 0; i < slices_.slots(); ++i) {
      ranges_.push_back(builder_.loan_slot(slices_.slot_count()));
    }
    for (const Slice& slice : slices_.kept()) append(slice);
  }

 private:
  void append(const Slice& slice) {
    if (slice.is_put) {
      put(slice);
    } else if (slice.holder == builder_.rank()) {
      hold(slice);
    } else if (contains(slice.readers, builder_.rank())) {
      builder_.await(slice.holder, in_slot(slice));
      if (slice.to_readers) builder_.move(home(slice), in_slot(slice));
    }
    if (slice.to_readers && !slice.is_put) {
      for (int reader : slice.readers) reply(slice, reader);
    }
    for (const auto& addend : slice.addends) {
      if (addend) read_by(slice.holder, slices_.kept()[*addend]);
    }
  }

  void put(const Slice& slice) {
    const int reader = slice.readers.front();
    if (reader == builder_.rank()) {
      builder_.offer(in_slot(slice), slices_.is_for_copies(slice));
      builder_.signal(slice.holder, in_slot(slice), Access::kWrite);
      builder_.await(slice.holder, in_slot(slice));
      builder_.move(home(slice), in_slot(slice));
    } else if (slice.holder == builder_.rank()) {
      builder_.await(reader, in_slot(slice));
      if (slice.is_contribution()) {
        builder_.move(in_slot(slice), input(slice));
      } else {
        sum(slice, in_slot(slice));
      }
      builder_.signal(reader, in_slot(slice), Access::kRead);
    }
  }

  void hold(const Slice& slice) {
    if (slice.sender) {
      builder_.recv(*slice.sender, in_slot(slice));
    } else if (!slice.addends.empty()) {
      sum(slice, slices_.needs_slot(slice) ? in_slot(slice) : home(slice));
    } else if (slices_.is_lent(slice)) {
      builder_.lend(in_slot(slice), slices_.is_for_copies(slice));
    } else if (slices_.needs_slot(slice)) {
      builder_.move(in_slot(slice), input(slice));
    }
    for (int reader : slice.readers) builder_.signal(reader, in_slot(slice), Access::kRead);
    for (int recipient : slice.recipients) builder_.send(recipient, in_slot(slice));
    if (!slice.to_holder) return;
    if (slice.is_contribution() && !slices_.are_cast()) {
      if (builder_.layout().out_of_place) builder_.move(home(slice), input(slice));
    } else if (slices_.needs_slot(slice)) {
      builder_.move(home(slice), in_slot(slice));
    }
  }

  void sum(const Slice& slice, const Range& target) {
    std::vector<Range> sources;
    for (const auto& addend : slice.addends) {
      sources.push_back(addend ? in_slot(slices_.kept()[*addend]) : own_addend(slice, target));
    }
    builder_.reduce(target, std::move(sources), slice.finishes);
  }

  /// The holder's contribution to a sum; if it is cast, it is first moved to the place of the sum.
  Range own_addend(const Slice& slice, const Range& target) {
    if (!slices_.are_cast()) return input(slice);
    builder_.move(target, input(slice));
    return target;
  }

  /// Called when `adder` has summed the slice.
  void read_by(int adder, const Slice& slice) {
    if (contains(slice.readers, adder)) reply(slice, adder);
  }

  void reply(const Slice& slice, int reader) {
    if (!slices_.needs_reply(slice, reader)) return;
    if (reader == builder_.rank()) {
      builder_.signal(slice.holder, in_slot(slice), Access::kWrite);
    } else if (slice.holder != builder_.rank()) {
      return;
    } else if (slices_.may_read_later(slice)) {
      builder_.await_previous(reader, in_slot(slice));
    } else {
      builder_.await(reader, in_slot(slice));
    }
  }

  Range in_slot(const Slice& slice) const {
    const Range& slot = ranges_[slice.slot];
    const Extent& piece = slice.piece;
    if (slice.is_put) return builder_.offered(slice.slot_owner(), piece.offset, piece.count, slot);
    if (slices_.is_lent(slice)) {
      return builder_.lent(slice.holder, piece.offset, piece.count, slot);
    }
    // Behind the note, as for a loan, because the memory of notes holds only notes.
    return Loan::elements({slice.holder, Region::kStaging, 0, piece.count, slot.offset},
                          builder_.layout().dtype);
  }
  Range home(const Slice& slice) const {
    return builder_.home(slice.piece.offset, slice.piece.count);
  }
  Range input(const Slice& slice) const {
    return builder_.input(slice.piece.offset, slice.piece.count);
  }

  ScheduleBuilder& builder_;
  const Slices& slices_;
  std::vector<Range> ranges_;  // slots
};

/// The ranks among which a part is cut into shares; a single rank has all of it.
std::vector<int> owners_of(const Goal::Part& part, const ProcessGrid& grid) {
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

/// How the ranks of one node share the copying of the node's data if receivers copy: a rank that
/// would copy less than others can write some of its contributions directly to their destinations.
class CopyLoad {
 public:
  CopyLoad(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid)
      : ranks_(static_cast<std::size_t>(grid.world_size())) {
    for (const Goal::Part& part : goal.parts()) {
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

  /// The share of a part that its contributor writes directly, so that all ranks copy equally much.
  /// Of n ranks, the root of a broadcast writes 1 / n, contributors to a gather write everything.
  double put_share(const Goal::Part& part) const {
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
    double received = 0;  ///< From other ranks.
  };

  const Elements& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Elements> ranks_;
  double mean_ = 0;  // mean bytes copied per rank
};

void append_filled(const SumShare& share, std::vector<SumShare>& shares) {
  if (share.extent.count > 0) shares.push_back(share);
}

/// Appends a part as a whole, or cut in two: one piece for its contributor to write directly, if
/// that is worth a flag.
void append_moved(const Goal::Part& part, const BucketLayout& layout, double put_share,
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

// An all-to-all has a move for every pair of ranks, and so has a reduce-scatter. Therefore a rank
// does not list all moves: it goes through a few at a time to count the slots of all ranks, and
// keeps the moves of its node.
class SlicePlan {
 public:
  SlicePlan(int rank, const CompileContext& context, const SliceRules& rules)
      : goal_(context.goal),
        layout_(context.layout),
        grid_(context.grid),
        rules_(rules),
        node_(context.grid.node(rank)),
        least_lent_(least_lent(context.options.link_costs)) {
    if (rules.puts) load_.emplace(goal_, layout_, grid_);
    // Inside a node each piece costs flags, and only a few, larger pieces are in slots.
    const std::size_t memory = grid_.num_nodes() == 1
                                   ? context.options.slot_bytes
                                   : slot_bytes(layout_.bytes(), context.options);
    const std::size_t in_a_round = rules.slots_in_turns
                                       ? *rules.slots_in_turns
                                       : std::max<std::size_t>(1, counted().most_used());
    piece_bytes_ = std::min(memory / in_a_round, rules.most_piece_bytes);
    const Slices all = counted();
    make_those_of_node();
    const std::size_t slot = std::max<std::size_t>(1, all.slot_count() * size_of(layout_.dtype));
    if (all.most_used() * slot <= memory) {
      // Pieces stay until the next iteration has begun everywhere, which their holder learns in any
      // case; see Schedule::staging_turns.
      slices_.give_slots(all.most_used(), all.slot_count(), 2);
    } else {
      const std::size_t most = context.options.window * std::max(in_a_round, memory / slot);
      slices_.give_slots(std::min(all.most_used(), most), all.slot_count(), 1);
    }
  }

  const Slices& slices() const { return slices_; }

 private:
  int distance(const SumShare& share, int contributor) const {
    const int ranks = grid_.world_size();
    return 1 + (share.adder - contributor + ranks - 1) % ranks;
  }

  bool is_near(const RankRange& ranks) const { return !members_of(grid_, node_, ranks).empty(); }

  /// Appends the non-empty shares of one part.
  void append_shares(const Goal::Part& part, std::vector<SumShare>& shares) const {
    if (part.receivers.empty() || part.contributors.empty()) return;
    if (!rules_.in_shares) {
      const double put_share = load_ && !part.sums() ? load_->put_share(part) : 0;
      // Through a slot a peer would not get it sooner.
      const std::size_t least_put = layout_.in_arenas
                                        ? least_lent_.mapped
                                        : std::max(least_lent_.mapped, least_lent_.unmapped);
      return append_moved(part, layout_, put_share, least_put, shares);
    }
    const std::vector<int> owners = owners_of(part, grid_);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      SumShare share{part, owners[i], i};
      share.extent = part_of(part.extent, owners.size(), i, layout_.dtype);
      append_filled(share, shares);
    }
  }

  /// Counts the slots that all ranks would use if none were reused.
  Slices counted() const {
    Slices slices(layout_, grid_, std::nullopt, least_lent_);
    std::vector<SumShare> of_part, shares;
    std::vector<Move> moves;
    const auto count = [&] {
      append_rounds(slices, shares, moves);
      shares.clear();
      moves.clear();
    };
    for (const Goal::Part& part : goal_.parts()) {
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
    return slices;
  }

  void make_those_of_node() {
    std::vector<SumShare> shares;
    for (const Goal::Part& part : goal_.parts()) {
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
    // Moves are already sorted by share.
    moves = by_number(by_number(std::move(moves), &Move::contributor), &Move::distance);
    if (!rules_.by_distance) return append_rounds(slices_, shares, moves);
    for (auto begin = moves.begin(); begin != moves.end();) {
      std::vector<SumShare> of_phase;
      auto end = begin;
      for (; end != moves.end() && end->distance == begin->distance; ++end) {
        of_phase.push_back(shares[std::exchange(end->share, of_phase.size())]);
      }
      append_rounds(slices_, of_phase, std::span(begin, end));
      begin = end;
    }
  }

  /// Sorts stably by a number that is at most the number of ranks.
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

  /// Piece number `round` of the share.
  Extent piece(const SumShare& share, std::size_t round) const {
    const std::size_t count = pieces_of(share);
    return round < count ? part_of(share.extent, count, round, layout_.dtype) : Extent{};
  }

  void append_rounds(Slices& slices, std::span<const SumShare> shares,
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
      rules_.append_round(slices, {.shares = shares, .pieces = pieces, .moves = moves_of_round});
    }
  }

  const Goal& goal_;
  const BucketLayout& layout_;
  const ProcessGrid& grid_;
  const SliceRules& rules_;
  int node_;
  LeastLent least_lent_;
  std::optional<CopyLoad> load_;
  // While slots are counted, a share is a single piece.
  std::size_t piece_bytes_ = std::numeric_limits<std::size_t>::max() / 2;
  Slices slices_{layout_, grid_, node_, least_lent_};
};

}  // namespace

LeastLent least_lent(const LinkCosts& costs) {
  const MemoryCost& memory = costs.memory;
  return {.mapped = static_cast<std::size_t>(2 * memory.latency_us * memory.slot_bytes_per_us),
          .unmapped = static_cast<std::size_t>(costs.private_read_us * memory.shared_bytes_per_us)};
}

std::size_t slot_bytes(std::size_t bytes, const CompileOptions& options) {
  return bytes <= options.cached_bytes ? options.cached_slot_bytes : options.slot_bytes;
}

void append_slices(ScheduleBuilder& builder, const CompileContext& context,
                   const SliceRules& rules) {
  const SlicePlan plan(builder.rank(), context, rules);
  Writer(builder, plan.slices()).append();
}

}  // namespace kolo
