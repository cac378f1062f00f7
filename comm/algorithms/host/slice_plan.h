#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/host/slices.h"
#include "comm/schedule/goal.h"
#include "comm/schedule/schedule_builder.h"

namespace kolo {

/// A part of a goal, or as much of it as one rank sums.
struct SumShare : Goal::Part {
  int adder = 0;           ///< Who sums it; a receiver of what is only moved.
  std::size_t number = 0;  ///< Among those of its part.
  /// Its contributor puts it where it goes; else receivers of its node copy it.
  bool is_put = false;
};

/// A contribution to a share. The distance from contributor to adder puts moves in an order in
/// which not all ranks begin with the same peer: from 1, the next rank, to the number of ranks,
/// oneself, so that nobody waits for what a rank keeps.
struct Move {
  int distance = 0;
  std::size_t share = 0;
  int contributor = 0;
};

/// A round moves a piece of each share, some of which are empty: of those that ranks of the node
/// whose slices are kept contribute to, sum or receive, or of some of all shares, whose slots are
/// counted. A sum that another node makes lacks the contributions of other nodes.
struct PieceRound {
  std::span<const SumShare> shares;
  std::span<const Extent> pieces;  ///< By share.
  std::span<const Move> moves;     ///< Of pieces that are not empty, by distance.
};

/// How an algorithm moves pieces through slots.
struct SliceRules {
  void (*append_round)(Slices& slices, const PieceRound& round) = nullptr;
  /// All pieces of the moves of one distance come before those of the next, so that a rank has
  /// few peers at a time. For what is not summed, and with `slots_in_turns`.
  bool by_distance = false;
  /// A sum with one receiver is made in shares, by all who contribute. What is moved is shared
  /// among the nodes that receive it from another.
  bool in_shares = false;
  /// Ranks of a node that would copy less than others put a share of their contributions where it
  /// goes.
  bool puts = false;
  /// The slots of one rank, if it uses them again within a round; at least as many as are in use at
  /// a time. Otherwise as many as it uses in a round.
  std::optional<std::size_t> slots_in_turns = std::nullopt;
  std::size_t most_piece_bytes = std::numeric_limits<std::size_t>::max();
};

/// The memory of a slot of each rank for a bucket of `bytes`, of which `CompileOptions::window`
/// exist, all rounds together.
std::size_t slot_bytes(std::size_t bytes, const CompileOptions& options);

/// Lending mapped memory saves the way through a slot, and makes the holder wait for a reply: a
/// flag there and one back. Lending private memory saves the way of the bytes from core to core,
/// and takes a call to the system.
LeastLent least_lent(const LinkCosts& costs);

/// Appends the steps of one rank to the schedule: in rounds, each of which fills a slot's memory
/// with the pieces that a rank holds at a time.
void append_slices(ScheduleBuilder& builder, const CompileContext& context,
                   const SliceRules& rules);

}  // namespace kolo
