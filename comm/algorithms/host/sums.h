#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "comm/algorithms/host/staged_plan.h"

namespace kolo {

/// Contributions to a piece at the rank that sums them, in rank order: chunks handed over by other
/// ranks, or an empty entry for its own contribution. They come from one node or, where sums are
/// made in one place, from all nodes.
struct Addends {
  int adder = 0;
  std::vector<std::optional<std::size_t>> chunks;
};

/// Whether each sum is made at one rank because partial sums would be rounded. Sums of cast
/// elements are made per node nevertheless, and rounded there, as in an all-reduce by
/// `hierarchical:direct,direct`; otherwise every contribution would have to leave its node.
bool sums_in_one_place(const BucketLayout& layout);

/// Hands the contributions in the round's moves to the ranks that sum them. Returns the addends by
/// share, in the order in which they are summed.
std::vector<std::vector<Addends>> hand_over(StagedChunks& chunks, const PieceRound& round);

/// Hands one node's contributions to a piece of a share to the rank that sums them. Before: the
/// node has contributions, and sums are not made in one place.
Addends hand_over_of_node(StagedChunks& chunks, const SumShare& share, const Extent& piece,
                          int node);

/// Sums a node's contributions and hands the result to `recipient` as an addend. A single
/// contribution is passed on as it is.
std::optional<std::size_t> sum_of_node(StagedChunks& chunks, const Extent& piece,
                                       const Addends& addends, int recipient);

}  // namespace kolo
