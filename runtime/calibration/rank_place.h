#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/wait/core_use.h"
#include "topology/process_grid.h"

namespace kolo {

/// Where a rank runs, as ranks tell each other at start.
struct RankPlace {
  CoreUse cores = {};
  std::string machine = {};  ///< See `machine_identity`.
  std::string links = {};    ///< See `link_identity`.
};

/// The place of this process, and the places of all ranks by rank, as they travel in an exchange.
std::string own_place();
std::vector<RankPlace> places_of(const std::vector<std::string>& texts);

/// The ranks that share cores with `rank`.
CoreSharers core_sharers(std::span<const RankPlace> places, const ProcessGrid& grid, int rank);

/// Cores that each rank has to itself on the fullest machine, at most one.
double rank_cores(std::span<const RankPlace> places);

/// Names the hardware that a job runs on: the machine of each node with its links, and how many
/// ranks and cores are there. Costs that were measured in a job of the same name hold in this one.
std::string job_shape(std::span<const RankPlace> places, const ProcessGrid& grid);

}  // namespace kolo
