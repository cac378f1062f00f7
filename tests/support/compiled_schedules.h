#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/compile.h"

namespace kolo::test {

inline CompileOptions with_algorithm(CompileOptions options, std::string_view name) {
  options.algorithm = name;
  return options;
}

/// Returns the name of the algorithm that is chosen for an all-reduce.
inline std::string taken(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options) {
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
  return std::string(choose({spec, layout, grid, options}).algorithm->name());
}

/// Returns the names of all all-reduce algorithms that support this kind of memory.
inline std::vector<std::string> all_reduces_in(MemoryKind memory) {
  std::vector<std::string> names;
  for (const AllReduce& each : all_reduces()) {
    if (each.takes(memory)) names.emplace_back(each.name());
  }
  return names;
}

/// Returns the schedule of one rank for an all-reduce.
inline Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                                   const CompileOptions& options) {
  return compile(rank, CollectiveSpec::all_reduce(grid.world_size()), layout, grid, options);
}

/// Returns the schedules of all ranks for an all-reduce, by rank.
inline std::vector<Schedule> compile_all(const ProcessGrid& grid, const BucketLayout& layout,
                                         const CompileOptions& options) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    schedules.push_back(compile_all_reduce(rank, layout, grid, options));
  }
  return schedules;
}

}  // namespace kolo::test
