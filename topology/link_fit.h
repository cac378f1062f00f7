#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// What one rank measured inside its node while all ranks of the node did the same.
struct MemorySamples {
  struct Pass {
    double working_set_bytes = 0;  ///< Touched again and again, all ranks of the node together.
    double bytes = 0;              ///< Read plus written by this rank.
    double us = 0;
  };
  /// What `flat` does: a copy of `bytes`, one trip, and a sum of all ranks' copies.
  struct Gather {
    double bytes = 0;
    double us = 0;
  };
  std::vector<double> trips_us = {};  ///< From a signal to all peers until all of theirs are here.
  std::vector<Pass> own_passes = {};  ///< Over lines that this rank wrote itself.
  std::vector<Gather> gathers = {};   ///< All of one size.
  int ranks = 1;                      ///< Of the node.
  int at_once = 1;  ///< Of them, those that really ran at once: no more than there are cores.
};

/// What one rank measured with a rank of another node.
struct NetworkSamples {
  struct Exchange {
    double bytes = 0;  ///< In each direction.
    double us = 0;
  };
  std::vector<double> round_trips_us = {};  ///< Of a small message and its answer.
  std::vector<double> bursts_us = {};       ///< Of `burst_messages` small ones and one answer.
  int burst_messages = 1;
  std::vector<Exchange> exchanges = {};  ///< Of two sizes at least.
};

/// What one rank knows of the costs after measuring; nothing where there was nothing to measure.
struct MeasuredCosts {
  std::optional<MemoryCost> memory = {};
  std::optional<NetworkCost> network = {};
};

/// Costs that explain the samples. Others disturb a measurement in one direction only, so the
/// lower quartile stands for each kind of sample; `defaults` stand in where samples are missing.
///
/// Threads: pure; any.
MemoryCost fit_memory(const MemorySamples& samples, const MemoryCost& defaults = {});
NetworkCost fit_network(const NetworkSamples& samples, const NetworkCost& defaults = {});

/// One set of costs from what all ranks measured, by rank: the median of each node, of which the
/// slowest counts, and the slowest link between nodes. What nobody measured keeps its default.
LinkCosts combine_costs(const std::vector<MeasuredCosts>& by_rank, const ProcessGrid& grid,
                        LinkCosts defaults = {});

}  // namespace kolo
