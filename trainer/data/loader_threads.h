#pragma once

#include <cstddef>

namespace kolo::trainer {

/// The cores that ranks of one node share, and what computes on them.
struct LoaderCores {
  std::size_t own;              ///< Cores that this rank may use.
  std::size_t machine;          ///< Cores of the node.
  std::size_t ranks;            ///< Ranks on the node.
  std::size_t compute_threads;  ///< Of each rank.
};

/// The cores as they are for this process.
LoaderCores find_loader_cores(std::size_t ranks, std::size_t compute_threads);

/// Threads that prepare batches for a rank: 1 if it has a core for it beside those that compute,
/// else 0.
std::size_t spare_loader_threads(const LoaderCores& cores);

}  // namespace kolo::trainer
