#pragma once

#include <vector>

#include "comm/collective/compile.h"

namespace kolo::test {

/// The schedules of one all-reduce, by rank.
inline std::vector<Schedule> compile_all(const ProcessGrid& grid, const BucketLayout& layout,
                                         const CompileOptions& options) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    schedules.push_back(compile_all_reduce(rank, layout, grid, options));
  }
  return schedules;
}

}  // namespace kolo::test
