#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/goals/goal_algorithm.h"

namespace kolo {

/// A tree of nodes, which are numbered from the root's on:
///
///   binomial   0 - 4 | 0 - 2 | 0 - 1, 2 - 3, 4 - 5    few messages in a row: for small tensors
///   chain      0 - 1 - 2 - 3 - 4 - 5                  each passes pieces on: for large ones
///   star       0 - 1 | 0 - 2 | 0 - 3 | 0 - 4 | 0 - 5  where other nodes would round partial sums
enum class TreeShape : std::uint8_t { kBinomial, kChain, kStar };

/// The edges of one node.
struct TreeEdges {
  std::optional<int> above;
  std::vector<int> below;  ///< Those with the fewest nodes below them first.
};
TreeEdges edges_of(TreeShape shape, int node, int nodes);

/// How a reduce or broadcast in device memory goes between nodes.
struct RootedRoute {
  TreeShape shape = TreeShape::kBinomial;
  std::size_t pieces = 1;  ///< Of each tensor, nearly equal; each one follows the last.
  double us = 0;           ///< The predicted time, with the collectives inside nodes.
};

/// The cheapest route for a goal of this size. Pure.
RootedRoute cheapest_route(const HostLinks& links, const GoalSize& size,
                           const CompileOptions& options);

}  // namespace kolo
