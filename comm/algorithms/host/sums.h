#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "comm/algorithms/host/staged_plan.h"

namespace kolo {

/// The contributions to a piece that one rank (`adder`) sums: all contributions of one node, or of
/// all nodes if each sum is made in one place.
struct Addends {
  int adder = 0;
  std::vector<std::optional<std::size_t>> chunks;
};

/// Whether each sum is made at one rank, because partial sums would be rounded. Sums of cast
/// elements are an exception: each node makes and rounds a partial sum, because otherwise every
/// contribution would have to leave its node.
bool sums_in_one_place(const BucketLayout& layout);

/// Adds the chunks that pass the contributions of the round's moves to the ranks that sum them.
/// Returns the addends by share, in the order in which they are summed.
std::vector<std::vector<Addends>> hand_over(StagedChunks& chunks, const PieceRound& round);

/// Adds the chunks that pass one node's contributions to `piece` to the rank of that node that sums
/// them. Before: the node has contributions, and sums are not made in one place.
Addends hand_over_of_node(StagedChunks& chunks, const SumShare& share, const Extent& piece,
                          int node);

/// Adds the chunks that sum a node's contributions and pass the result to `recipient`. Returns the
/// index of the result as an addend there; an empty value stands for the contribution of
/// `recipient`.
std::optional<std::size_t> sum_of_node(StagedChunks& chunks, const Extent& piece,
                                       const Addends& addends, int recipient);

}  // namespace kolo
