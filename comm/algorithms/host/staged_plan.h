#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/host/staged_chunks.h"
#include "comm/schedule/collective_spec.h"
#include "comm/schedule/schedule_builder.h"

namespace kolo {

/// A part of a spec, or as much of it as one rank sums.
struct SumShare : CollectiveSpec::Part {
  int adder = 0;           ///< The rank that sums the part; for a part that is only moved, a
                           ///< receiver.
  std::size_t number = 0;  ///< Index among the shares of its part.
  /// The contributor writes it to its destination; otherwise receivers of its node copy it.
  bool is_put = false;
};

/// A contribution to a share. Moves are ordered by the distance from contributor to adder, so that
/// ranks begin with different peers: 1 is the next rank, the number of ranks is the contributor
/// itself. A rank's own contribution comes last, because nobody waits for it.
struct Move {
  int distance = 0;
  std::size_t share = 0;
  int contributor = 0;
};

/// A round moves one piece of each share; a piece may be empty. If chunks of one node are kept, the
/// round has the pieces that ranks of this node contribute to, sum or receive; if slots are
/// counted, it has pieces of some of all shares. A sum made by another node lacks the contributions
/// of other nodes.
struct PieceRound {
  std::span<const SumShare> shares;
  std::span<const Extent> pieces;  ///< By share.
  std::span<const Move> moves;     ///< Moves of non-empty pieces, by distance.
};

/// Rules by which an algorithm moves pieces through slots.
struct ChunkPolicy {
  void (*append_round)(StagedChunks& chunks, const PieceRound& round) = nullptr;
  /// Moves all pieces of one distance before those of the next, so that a rank has few peers at a
  /// time. Applies to data that is not summed, and with `slots_in_turns`.
  bool by_distance = false;
  /// A sum with one receiver is made in shares, one per contributor. Data that is only moved is
  /// split into shares among the nodes that receive it from another node.
  bool in_shares = false;
  /// In a node, ranks that would copy less than others write a share of their contributions
  /// directly to the destination.
  bool puts = false;
  /// Slots per rank, if it reuses them within a round: at least as many as are in use at a time.
  /// Empty: as many as it uses in a round.
  std::optional<std::size_t> slots_in_turns = std::nullopt;
  std::size_t most_piece_bytes = std::numeric_limits<std::size_t>::max();
};

/// Size of the slot memory per rank for a bucket of `bytes`, over all rounds. There are
/// `CompileOptions::window` such slots.
std::size_t slot_bytes(std::size_t bytes, const CompileOptions& options);

/// The sizes from which exposing pays. Exposing mapped memory avoids a copy through a slot, but the
/// holder waits for a reply: one flag there and one back. Exposing private memory avoids moving the
/// bytes from core to core, but takes a system call.
LeastExposed least_exposed(const LinkCosts& costs);

/// Appends the steps of one rank to the schedule, in rounds. Each round fills a slot's memory with
/// the pieces that a rank holds at a time.
void append_staged_chunks(ScheduleBuilder& builder, const CompileContext& context,
                          const ChunkPolicy& rules);

}  // namespace kolo
