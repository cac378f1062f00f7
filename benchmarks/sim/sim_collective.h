#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/sim/sim_cluster.h"

namespace kolo::bench {

/// The time of one algorithm for a collective other than all-reduce.
struct CollectiveTime {
  std::string algorithm;
  bool is_choice = false;   ///< Of "auto".
  double predicted_us = 0;  ///< Its price.
  double simulated_us = 0;  ///< Its schedules on virtual time.
};

/// Plays each algorithm that serves the collective and has a price for it; in the memory of a
/// device, mirrors too. One call of a device's library takes its price. Parts are equal,
/// `bytes` in all in float32, of an all-to-all those of one rank, out of place but for a broadcast.
/// Errors: those of `even_goal` and `Cluster::schedules`.
std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes);

}  // namespace kolo::bench
