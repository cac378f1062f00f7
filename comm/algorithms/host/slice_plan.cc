#include "comm/algorithms/host/slice_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/host/slice_writer.h"

namespace kolo {
namespace {

/// Whose shares a part is cut into; one rank has it whole.
std::vector<int> owners_of(const Goal::Part& part, const ProcessGrid& grid) {
  if (part.sums()) {
    return part.receivers.size() > 1 ? std::vector{part.receivers.front()} : part.contributors;
  }
  std::vector<int> owners;
  for (const std::vector<int>& members : by_node(grid, part.receivers, part.contributors.front())) {
    const bool is_other =
        !members.empty() && !grid.same_node(members.front(), part.contributors.front());
    if (is_other) owners.push_back(members.front());
  }
  return owners.empty() ? std::vector{part.receivers.front()} : owners;
}

/// Who copies how much of what ranks of one node have for each other and for themselves, if
/// receivers do: a rank that would copy less than others can put some of its contributions where
/// they go.
class CopyLoad {
 public:
  CopyLoad(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid)
      : ranks_(static_cast<std::size_t>(grid.world_size())) {
    for (const Goal::Part& part : goal.parts) {
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

  /// The share of a part that its contributor puts, so that all copy alike. The root of a broadcast
  /// among n ranks puts 1 / n, those that contribute to a gather put all.
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
    double received = 0;  ///< From others.
  };

  const Elements& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Elements> ranks_;
  double mean_ = 0;  // of what is copied
};

/// A part that is only moved, and of it as much as its contributor puts, if that is worth a flag.
void append_moved(const Goal::Part& part, const BucketLayout& layout, double put_share,
                  std::size_t least_put, std::vector<SumShare>& shares) {
  SumShare copied{part, part.receivers.front()};
  const auto unit = static_cast<double>(kWireAlignment / size_of(layout.dtype));
  const auto put = static_cast<std::size_t>(
      std::floor(static_cast<double>(part.extent.count) * put_share / unit) * unit);
  if (put * size_of(layout.dtype) < std::max<std::size_t>(least_put, 1)) {
    shares.push_back(std::move(copied));
    return;
  }
  SumShare rest = copied;
  rest.is_put = true;
  rest.extent.offset += part.extent.count - put;
  rest.extent.count = put;
  copied.extent.count -= put;
  shares.push_back(std::move(copied));
  shares.push_back(std::move(rest));
}

std::vector<SumShare> shares_of(const Goal& goal, const BucketLayout& layout,
                                const ProcessGrid& grid, const SliceRules& rules,
                                const LeastLent& least_lent) {
  std::vector<SumShare> shares;
  const CopyLoad load(goal, layout, grid);
  // Through a slot a peer gets it no sooner.
  const std::size_t least_put =
      layout.in_arenas ? least_lent.mapped : std::max(least_lent.mapped, least_lent.unmapped);
  for (const Goal::Part& part : goal.parts) {
    if (part.receivers.empty() || part.contributors.empty()) continue;
    if (!rules.in_shares) {
      const bool may_put = rules.puts && !part.sums();
      append_moved(part, layout, may_put ? load.put_share(part) : 0, least_put, shares);
      continue;
    }
    const std::vector<int> owners = owners_of(part, grid);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      SumShare share{part, owners[i]};
      share.extent = part_of(part.extent, owners.size(), i, layout.dtype);
      shares.push_back(std::move(share));
    }
  }
  return shares;
}

class SlicePlan {
 public:
  SlicePlan(int rank, const CompileContext& context, const SliceRules& rules)
      : layout_(context.layout),
        grid_(context.grid),
        rules_(rules),
        node_(context.grid.node(rank)),
        least_lent_(least_lent(context.options.link_costs)),
        shares_(shares_of(context.goal, context.layout, context.grid, rules, least_lent_)),
        moves_(moves_of(shares_)) {
    // Inside a node each piece costs flags, and few are in slots at all: the larger ones.
    const std::size_t memory = grid_.num_nodes() == 1
                                   ? context.options.slot_bytes
                                   : slot_bytes(layout_.bytes(), context.options);
    const std::size_t in_a_round =
        rules.slots_in_turns ? *rules.slots_in_turns : slots_of_a_round();
    piece_bytes_ = std::min(memory / in_a_round, rules.most_piece_bytes);
    make(slices_);
    const std::size_t slot =
        std::max<std::size_t>(1, slices_.slot_count() * size_of(layout_.dtype));
    if (slices_.most_used() * slot <= memory) {
      // Pieces stay until the next iteration has begun everywhere, of which their holder hears
      // anyway; see Schedule::staging_turns.
      slices_.give_slots(slices_.most_used(), 2);
    } else {
      slices_.give_slots(context.options.window * std::max(in_a_round, memory / slot), 1);
    }
  }

  const Slices& slices() const { return slices_; }

 private:
  std::vector<Move> moves_of(std::span<const SumShare> shares) const {
    std::vector<Move> moves;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].extent.count == 0) continue;
      for (const int contributor : shares[i].contributors) {
        const int ranks = grid_.world_size();
        const int distance = 1 + (shares[i].adder - contributor + ranks - 1) % ranks;
        moves.push_back({distance, i, contributor});
      }
    }
    // They ascend by share.
    return by_number(by_number(std::move(moves), &Move::contributor), &Move::distance);
  }

  /// In the order of a number that is at most that of ranks, and otherwise as before.
  std::vector<Move> by_number(std::vector<Move> moves, int Move::*number) const {
    std::vector<std::size_t> next(static_cast<std::size_t>(grid_.world_size()) + 2);
    for (const Move& move : moves) ++next[static_cast<std::size_t>(move.*number) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<Move> sorted(moves.size());
    for (const Move& move : moves) sorted[next[static_cast<std::size_t>(move.*number)]++] = move;
    return sorted;
  }

  /// The moves that go through their rounds together: all, or those of each distance.
  template <typename Visit>
  void for_each_phase(Visit visit) const {
    const std::span<const Move> all = moves_;
    if (!rules_.by_distance) return visit(all);
    for (auto begin = all.begin(); begin != all.end();) {
      const auto end = std::find_if(
          begin, all.end(), [&](const Move& move) { return move.distance != begin->distance; });
      visit(std::span(begin, end));
      begin = end;
    }
  }

  std::size_t pieces_of(const SumShare& share) const {
    return share.extent.count == 0 ? 0 : chunk_count(share.extent, layout_.dtype, piece_bytes_);
  }

  /// Piece number `round` of the share.
  Extent piece(const SumShare& share, std::size_t round) const {
    const std::size_t count = pieces_of(share);
    return round < count ? part_of(share.extent, count, round, layout_.dtype) : Extent{};
  }

  void append_round(Slices& slices, std::span<const Move> phase, std::size_t round) const {
    std::vector<Extent> pieces(shares_.size());
    std::vector<Move> moves;
    for (const Move& move : phase) {
      Extent& extent = pieces[move.share];
      if (extent.count == 0) extent = piece(shares_[move.share], round);
      if (extent.count > 0) moves.push_back(move);
    }
    rules_.append_round(slices, {.shares = shares_, .pieces = pieces, .moves = moves});
  }

  /// The most slots that one rank uses in a round, but at least one.
  std::size_t slots_of_a_round() const {
    std::size_t most = 1;
    for_each_phase([&](std::span<const Move> phase) {
      Slices slices(layout_, grid_, node_, least_lent_);
      append_round(slices, phase, 0);
      most = std::max(most, slices.most_used());
    });
    return most;
  }

  void make(Slices& slices) const {
    for_each_phase([&](std::span<const Move> phase) {
      std::size_t rounds = 0;
      for (const Move& move : phase) rounds = std::max(rounds, pieces_of(shares_[move.share]));
      for (std::size_t round = 0; round < rounds; ++round) append_round(slices, phase, round);
    });
  }

  const BucketLayout& layout_;
  const ProcessGrid& grid_;
  const SliceRules& rules_;
  int node_;
  LeastLent least_lent_;
  std::vector<SumShare> shares_;
  std::vector<Move> moves_;
  // While slots are counted a share is one piece.
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
  append_steps(builder, plan.slices());
}

}  // namespace kolo
