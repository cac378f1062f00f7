#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/wait/core_use.h"
#include "topology/process_grid.h"

namespace kolo {

/// Where a rank runs; ranks exchange this at start.
struct RankPlace {
  CoreUse cores = {};
  std::string machine = {};  ///< See `machine_identity`.
  std::string links = {};    ///< See `link_identity`.
};

/// The encoded place of this process, and the decoded places of all ranks, by rank.
std::string own_place();
std::vector<RankPlace> places_of(const std::vector<std::string>& texts);

/// The ranks that share cores with `rank`.
CoreSharers core_sharers(std::span<const RankPlace> places, const ProcessGrid& grid, int rank);

/// Cores per rank on the fullest machine, at most one.
double rank_cores(std::span<const RankPlace> places);

/// Identifies the hardware of a job: the machine of each node with its links, and its numbers of
/// ranks and cores. Costs measured in a job of the same shape are valid in this one.
std::string job_shape(std::span<const RankPlace> places, const ProcessGrid& grid);

}  // namespace kolo
