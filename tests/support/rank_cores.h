#pragma once

#include "topology/link_costs.h"

namespace kolo::test {

/// What links cost by default, where each rank has so many cores to itself.
inline LinkCosts with_rank_cores(double rank_cores) {
  LinkCosts costs;
  costs.rank_cores = rank_cores;
  return costs;
}

}  // namespace kolo::test
