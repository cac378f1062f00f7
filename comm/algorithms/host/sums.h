#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "comm/algorithms/host/slice_plan.h"

namespace kolo {

/// Contributions to a piece at a rank that adds them up, in the order of ranks: slices that others
/// have handed to it, or its own contribution, which has none. All of one node or, where sums are
/// made in one place, all.
struct Addends {
  int adder = 0;
  std::vector<std::optional<std::size_t>> slices;
};

/// Whether partial sums would be rounded, so that each sum is made in one place. Sums of elements
/// that are cast are made by nodes, and each is rounded, as in an all-reduce of them by
/// `hierarchical:direct,direct`: otherwise every contribution would leave its node.
bool sums_in_one_place(const BucketLayout& layout);

/// Hands the contributions of the round's moves to the ranks that add them up. By share, in the
/// order in which these are added.
std::vector<std::vector<Addends>> hand_over(Slices& slices, const PieceRound& round);

/// Hands the contributions of one node to a piece of a share to the rank that adds them up. Before:
/// the node has some, and sums are not made in one place.
Addends hand_over_of_node(Slices& slices, const SumShare& share, const Extent& piece, int node);

/// The sum of a node's contributions, as an addend at `recipient`, to which its adder hands it.
/// Nothing is added where there is but one: it goes as it is.
std::optional<std::size_t> sum_of_node(Slices& slices, const Extent& piece, const Addends& addends,
                                       int recipient);

}  // namespace kolo
