#include "comm/collective/exchange.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/collective/chunking.h"

namespace kolo {
namespace {

using Ranks = std::vector<int>;

bool contains(const Ranks& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

/// A piece in a slot of its holder, with all that happens to it there.
struct Slice {
  Extent piece;
  int holder = 0;
  /// How it gets there: the holder receives it from `sender`, or sums `addends`; with neither, it
  /// packs its own contribution.
  std::optional<int> sender = {};
  /// Slices of which it is the sum; empty: the holder's own contribution.
  std::vector<std::optional<std::size_t>> addends = {};
  bool finishes = false;  ///< As a sum, it is complete.

  Ranks readers = {};       ///< Ranks of the holder's node that read it.
  Ranks recipients = {};    ///< Ranks of other nodes to which it is sent.
  bool to_readers = false;  ///< It is in the result of its readers.
  bool to_holder = false;   ///< It is in the result of its holder.

  std::size_t slot = 0;

  bool is_contribution() const { return !sender && addends.empty(); }
  /// Only its holder needs it.
  bool is_private() const { return readers.empty() && recipients.empty(); }
};

/// The slices of all ranks, in an order in which each comes after those that it is made of.
///
/// All ranks append their steps in this order, so that the flags of two ranks agree and nobody
/// waits in a circle. In one round every part moves by one piece; a slot is used again in a later
/// round.
class Exchange {
 public:
  Exchange(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid,
           const CompileOptions& options)
      : layout_(layout), grid_(grid), options_(options), parts_(shared_out(goal)) {
    sums_in_one_place_ =
        is_16bit_float(layout.dtype) && layout.op != ReduceOp::kMin && layout.op != ReduceOp::kMax;
    slots_of_a_round_ = count_slots_of_a_round();
    const std::size_t piece_bytes = slot_bytes() / slots_of_a_round_;
    for (const Share& share : parts_) {
      if (share.extent.count == 0) continue;
      rounds_ = std::max(rounds_, chunk_count(share.extent, layout.dtype, piece_bytes));
    }
    for (std::size_t round = 0; round < rounds_; ++round) append_round(round, piece_bytes);
    give_slots();
  }

  const std::vector<Slice>& slices() const { return slices_; }
  std::size_t slots() const { return slots_; }
  /// Elements of the longest piece.
  std::size_t slot_count() const { return slot_count_; }
  /// Flags from one rank to another of its node, where there are most.
  std::uint32_t flags() const;

  bool needs_slot(const Slice& slice) const {
    if (!slice.is_private() || slice.sender) return true;
    return slice.is_contribution() && layout_.out_of_place;
  }

  /// How often the slots exist. Small pieces stay until the next iteration has begun everywhere,
  /// of which their holder hears anyway; see Schedule::staging_turns.
  std::uint32_t turns() const { return rounds_ > 1 ? 1 : 2; }

  /// Whether `reader` tells the holder that it has read the slice.
  bool needs_reply(const Slice& slice, int reader) const {
    return turns() == 1 || !told_.contains({reader, slice.holder});
  }

 private:
  /// A part, or as much of it as one rank sums.
  struct Share : Goal::Part {
    int adder = 0;  ///< Who sums it.
  };

  /// One step of the way of a part in a round: the distance from contributor to receiver puts it in
  /// an order in which not all ranks begin with the same peer.
  struct Move {
    int distance = 0;
    std::size_t part = 0;
    int contributor = 0;
  };

  std::size_t slot_bytes() const {
    const std::size_t bytes = layout_.bytes();
    return bytes <= options_.cached_bytes ? options_.cached_slot_bytes : options_.slot_bytes;
  }

  /// A receiver sums its part. The only receiver of a large bucket would sum and receive all of it,
  /// while other processors and links are idle, so every rank sums a share for it.
  std::vector<Share> shared_out(const Goal& goal) const {
    std::vector<Share> shares;
    for (const Goal::Part& part : goal.parts) {
      const bool is_rooted = goal.parts.size() == 1 && part.sums() && part.receivers.size() == 1;
      if (!is_rooted || part.contributors.size() == 2 || layout_.bytes() <= slot_bytes()) {
        shares.push_back({part, part.receivers.front()});
        continue;
      }
      for (std::size_t i = 0; i < part.contributors.size(); ++i) {
        Share share{part, part.contributors[i]};
        share.extent = part_of(part.extent, part.contributors.size(), i, layout_.dtype);
        shares.push_back(std::move(share));
      }
    }
    return shares;
  }

  /// The most slots that one rank uses in a round, but at least one.
  std::size_t count_slots_of_a_round() {
    append_round(0, std::numeric_limits<std::size_t>::max() / 2);
    std::map<int, std::size_t> used;
    std::size_t most = 1;
    for (const Slice& slice : slices_) {
      if (needs_slot(slice)) most = std::max(most, ++used[slice.holder]);
    }
    slices_.clear();
    return most;
  }

  /// From 1, the next rank, to the number of ranks, oneself: nobody waits for what a rank keeps.
  int distance(int from, int to) const {
    return 1 + (to - from + grid_.world_size() - 1) % grid_.world_size();
  }

  void append_round(std::size_t round, std::size_t piece_bytes) {
    std::vector<Move> moves;
    std::vector<Extent> pieces;  // by part
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Share& part = parts_[i];
      const std::size_t count =
          part.extent.count == 0 ? 0 : chunk_count(part.extent, layout_.dtype, piece_bytes);
      const Extent piece =
          round < count ? part_of(part.extent, count, round, layout_.dtype) : Extent{};
      pieces.push_back(piece);
      if (piece.count == 0) continue;
      for (int contributor : part.contributors) {
        moves.push_back({distance(contributor, part.adder), i, contributor});
      }
    }
    std::ranges::sort(moves, {}, [](const Move& move) {
      return std::tuple(move.distance, move.contributor, move.part);
    });
    std::vector<std::map<int, std::size_t>> handed(parts_.size());
    for (const Move& move : moves) {
      const Share& part = parts_[move.part];
      const Extent& piece = pieces[move.part];
      if (!part.sums()) {
        spread({.piece = piece, .holder = move.contributor}, part.receivers);
      } else if (const int adder = adder_of(part, move.contributor); adder != move.contributor) {
        handed[move.part][move.contributor] = hand_over(piece, move.contributor, adder);
      }
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (pieces[i].count > 0 && parts_[i].sums()) {
        append_sum(parts_[i], pieces[i], handed[i]);
      }
    }
  }

  /// The rank that adds up what `contributor` contributes: that of the part, or for another node
  /// one of its own ranks.
  int adder_of(const Share& part, int contributor) const {
    if (sums_in_one_place_ || grid_.same_node(contributor, part.adder)) return part.adder;
    const Ranks& peers = grid_.ranks_of_node(grid_.node(contributor));
    return peers[static_cast<std::size_t>(part.adder) % peers.size()];
  }

  /// The contribution of `from`, for `to` to add up.
  std::size_t hand_over(const Extent& piece, int from, int to) {
    if (grid_.same_node(from, to)) return add({.piece = piece, .holder = from, .readers = {to}});
    add({.piece = piece, .holder = from, .recipients = {to}});
    return add({.piece = piece, .holder = to, .sender = from});
  }

  void append_sum(const Share& part, const Extent& piece,
                  const std::map<int, std::size_t>& handed) {
    std::map<int, std::vector<std::optional<std::size_t>>> addends;  // by adder
    std::vector<int> adders;  // in the order of their first contributions
    for (int contributor : part.contributors) {
      const int adder = adder_of(part, contributor);
      if (!contains(adders, adder)) adders.push_back(adder);
      const auto slice = handed.find(contributor);
      addends[adder].push_back(slice == handed.end() ? std::nullopt
                                                     : std::make_optional(slice->second));
    }
    std::vector<std::optional<std::size_t>> all;
    for (int adder : adders) {
      if (adder == part.adder) {
        all.insert(all.end(), addends[adder].begin(), addends[adder].end());
        continue;
      }
      Slice sum{.piece = piece, .holder = adder, .recipients = {part.adder}};
      // The only contribution of its node goes as it is.
      if (addends[adder].size() > 1) sum.addends = addends[adder];
      add(sum);
      all.push_back(add({.piece = piece, .holder = part.adder, .sender = adder}));
    }
    spread({.piece = piece, .holder = part.adder, .addends = all, .finishes = true},
           part.receivers);
  }

  /// Brings `slice` from its holder to all receivers.
  void spread(Slice slice, const Ranks& receivers) {
    slice.to_readers = true;
    slice.to_holder = contains(receivers, slice.holder);
    std::vector<Slice> relayed;
    for (int node = 0; node < grid_.num_nodes(); ++node) {
      Ranks members;
      for (int rank : receivers) {
        if (grid_.node(rank) == node && rank != slice.holder) members.push_back(rank);
      }
      if (members.empty()) continue;
      if (node == grid_.node(slice.holder)) {
        slice.readers = members;
        continue;
      }
      // Pieces of different ranks enter the node at different ranks.
      const auto head = static_cast<std::size_t>(slice.holder) % members.size();
      slice.recipients.push_back(members[head]);
      relayed.push_back({.piece = slice.piece,
                         .holder = members[head],
                         .sender = slice.holder,
                         .to_readers = true,
                         .to_holder = true});
      members.erase(members.begin() + static_cast<std::ptrdiff_t>(head));
      relayed.back().readers = members;
    }
    add(std::move(slice));
    for (Slice& relay : relayed) add(std::move(relay));
  }

  std::size_t add(Slice slice) {
    slices_.push_back(std::move(slice));
    return slices_.size() - 1;
  }

  void give_slots();

  const BucketLayout& layout_;
  const ProcessGrid& grid_;
  const CompileOptions& options_;
  const std::vector<Share> parts_;
  bool sums_in_one_place_ = false;
  std::vector<Slice> slices_;
  std::size_t rounds_ = 0;
  std::set<std::pair<int, int>> told_;  // (holder, reader)
  std::size_t slots_of_a_round_ = 1;
  std::size_t slots_ = 0;
  std::size_t slot_count_ = 0;
};

void Exchange::give_slots() {
  std::map<int, std::size_t> used;
  std::size_t most = 0;
  for (const Slice& slice : slices_) {
    if (!needs_slot(slice)) continue;
    slot_count_ = std::max(slot_count_, slice.piece.count);
    most = std::max(most, ++used[slice.holder]);
  }
  slots_ = std::min(most, options_.window * slots_of_a_round_);
  std::map<int, std::size_t> next;
  for (Slice& slice : slices_) {
    for (int reader : slice.readers) told_.insert({slice.holder, reader});
    if (needs_slot(slice)) slice.slot = next[slice.holder]++ % slots_;
  }
}

std::uint32_t Exchange::flags() const {
  std::map<std::pair<int, int>, std::uint32_t> flags;
  std::uint32_t most = 0;
  for (const Slice& slice : slices_) {
    for (int reader : slice.readers) {
      most = std::max(most, ++flags[{slice.holder, reader}]);
      if (needs_reply(slice, reader)) most = std::max(most, ++flags[{reader, slice.holder}]);
    }
  }
  return most;
}

/// Writes down what one rank does with the slices of all.
class Writer {
 public:
  Writer(ScheduleBuilder& builder, const Exchange& exchange)
      : builder_(builder), exchange_(exchange) {}

  void append() {
    builder_.forgo_bucket();
    builder_.set_staging_turns(exchange_.turns());
    builder_.reserve_flags(exchange_.flags());
    for (std::size_t i = 0; i < exchange_.slots(); ++i) {
      slots_.push_back(builder_.staging(exchange_.slot_count()));
    }
    for (const Slice& slice : exchange_.slices()) append(slice);
  }

 private:
  void append(const Slice& slice) {
    if (slice.holder == builder_.rank()) {
      hold(slice);
    } else if (contains(slice.readers, builder_.rank())) {
      builder_.await(slice.holder, in_slot(slice));
      if (slice.to_readers) builder_.move(home(slice), in_slot(slice));
    }
    if (slice.to_readers) {
      for (int reader : slice.readers) reply(slice, reader);
    }
    for (const auto& addend : slice.addends) {
      if (addend) read_by(slice.holder, exchange_.slices()[*addend]);
    }
  }

  void hold(const Slice& slice) {
    if (slice.sender) {
      builder_.recv(*slice.sender, in_slot(slice));
    } else if (!slice.addends.empty()) {
      sum(slice);
    } else if (exchange_.needs_slot(slice)) {
      builder_.move(in_slot(slice), input(slice));
    }
    for (int reader : slice.readers) builder_.signal(reader, in_slot(slice), Access::kRead);
    for (int recipient : slice.recipients) builder_.send(recipient, in_slot(slice));
    const bool is_there = !exchange_.needs_slot(slice) ||
                          (slice.is_contribution() && !builder_.layout().out_of_place);
    if (slice.to_holder && !is_there) builder_.move(home(slice), in_slot(slice));
  }

  void sum(const Slice& slice) {
    std::vector<Range> sources;
    for (const auto& addend : slice.addends) {
      sources.push_back(addend ? in_slot(exchange_.slices()[*addend]) : input(slice));
    }
    const Range target = exchange_.needs_slot(slice) ? in_slot(slice) : home(slice);
    builder_.reduce(target, std::move(sources), slice.finishes);
  }

  /// `adder` has added up the slice.
  void read_by(int adder, const Slice& slice) {
    if (contains(slice.readers, adder)) reply(slice, adder);
  }

  void reply(const Slice& slice, int reader) {
    if (!exchange_.needs_reply(slice, reader)) return;
    if (reader == builder_.rank()) {
      builder_.signal(slice.holder, in_slot(slice), Access::kWrite);
    } else if (slice.holder == builder_.rank()) {
      builder_.await(reader, in_slot(slice));
    }
  }

  Range in_slot(const Slice& slice) const {
    return {slice.holder, Region::kStaging, slots_[slice.slot].offset, slice.piece.count};
  }
  Range home(const Slice& slice) const {
    return builder_.home(slice.piece.offset, slice.piece.count);
  }
  Range input(const Slice& slice) const {
    return builder_.input(slice.piece.offset, slice.piece.count);
  }

  ScheduleBuilder& builder_;
  const Exchange& exchange_;
  std::vector<Range> slots_;
};

}  // namespace

void append_exchange(ScheduleBuilder& builder, const Goal& goal, const ProcessGrid& grid,
                     const CompileOptions& options) {
  Writer(builder, Exchange(goal, builder.layout(), grid, options)).append();
}

}  // namespace kolo
