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

/// A share of a part: the elements that one rank sums, or the whole part.
struct SumShare : CollectiveSpec::Part {
  int adder = 0;           ///< The rank that sums the share; without sums, a receiver.
  std::size_t number = 0;  ///< Index among the shares of its part.
  /// Whether the contributor writes the share into the receivers' result buffers. Otherwise
  /// receivers of its node copy it.
  bool is_put = false;
};

/// The contribution of one rank to a share. Moves are ordered by `distance`, so that ranks begin
/// with different peers. `distance` is the number of ranks from contributor to adder, counted
/// cyclically; if both are the same rank, it is the number of all ranks, so that this move comes
/// last.
struct Move {
  int distance = 0;
  std::size_t share = 0;
  int contributor = 0;
};

/// The input of one call of `ChunkPolicy::append_round`, which moves one piece of each share. If
/// chunks of a node are kept, the round has only the shares to which ranks of that node contribute,
/// or which they sum or receive; for a sum made on another node, only moves of that node's ranks
/// are listed. If slots are counted, the round has a subset of all shares.
struct PieceRound {
  std::span<const SumShare> shares;
  std::span<const Extent> pieces;  ///< By share; a piece may be empty.
  std::span<const Move> moves;     ///< Moves of non-empty pieces, in ascending order of distance.
};

/// The rules by which an algorithm moves pieces through slots.
struct ChunkPolicy {
  void (*append_round)(StagedChunks& chunks, const PieceRound& round) = nullptr;
  /// Whether all pieces of one distance move before those of the next, so that a rank has few peers
  /// at a time. It requires data that is not summed, and `slots_in_turns`.
  bool by_distance = false;
  /// Whether parts are cut into shares. A sum with one receiver gets one share per contributor;
  /// data that is not summed gets one share per node that receives it from another node.
  bool in_shares = false;
  /// Whether ranks that would copy less than the other ranks of their node write contributions
  /// directly into result buffers.
  bool puts = false;
  /// Slots per rank, if they are reused within a round; at least as many as are in use at a time.
  /// If empty, slots are not reused within a round.
  std::optional<std::size_t> slots_in_turns = std::nullopt;
  std::size_t most_piece_bytes = std::numeric_limits<std::size_t>::max();
};

/// Bytes of slot memory that one round may use per rank, for a bucket of `bytes`.
std::size_t slot_bytes(std::size_t bytes, const CompileOptions& options);

/// Computes the sizes from which exposing a buffer saves time. Exposing mapped memory saves a copy
/// through a slot, but costs two flag latencies. Exposing private memory saves moving the bytes
/// from core to core, but costs a system call.
LeastExposed least_exposed(const LinkCosts& costs);

/// Appends the steps of the builder's rank, in rounds. The piece size is chosen so that the pieces
/// that a rank holds in a round fit in `slot_bytes`.
void append_staged_chunks(ScheduleBuilder& builder, const CompileContext& context,
                          const ChunkPolicy& rules);

}  // namespace kolo
