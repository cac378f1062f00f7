#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/wait/core_use.h"
#include "topology/process_grid.h"

namespace kolo {

/// The cores, machine and links of a rank; ranks exchange this at start.
struct RankPlace {
  CoreUse cores = {};
  std::string machine = {};  ///< See `machine_identity`.
  std::string links = {};    ///< See `link_identity`.
};

/// Encodes the place of this process, and decodes the places of all ranks, by rank.
std::string own_place();
std::vector<RankPlace> places_of(const std::vector<std::string>& texts);

/// The ranks that share cores with `rank`.
CoreSharers core_sharers(std::span<const RankPlace> places, const ProcessGrid& grid, int rank);

/// Returns the cores per rank on the fullest machine, at most one.
double rank_cores(std::span<const RankPlace> places);

/// Identifies the hardware of a job: the name of each node, its links, and its numbers of ranks and
/// cores. Costs are valid for all jobs of equal shape.
std::string job_shape(std::span<const RankPlace> places, const ProcessGrid& grid);

}  // namespace kolo
