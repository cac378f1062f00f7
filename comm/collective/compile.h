#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/cost_model.h"
#include "topology/process_grid.h"

namespace kolo {

/// What decides which schedule a bucket gets; equal on all ranks.
struct CompileOptions {
  /// "auto", a name of `algorithm_names()`, or "hierarchical:LOCAL,CROSS" with LOCAL direct or
  /// ring.
  std::string algorithm = "auto";
  std::size_t chunk_bytes = std::size_t{1} << 20;
  LinkCosts link_costs = {};
};

/// Names that `CompileOptions::algorithm` takes beside "auto" and "hierarchical:LOCAL,CROSS".
const std::vector<std::string>& algorithm_names();

/// The algorithm that "auto" stands for, or the given one in full ("hierarchical" names its parts).
/// Errors: KoloError(kConfig) if there is no such algorithm, or if it would round a 16-bit bucket
/// more than once per level (ring, halving_doubling, tree), naming those that do not.
std::string resolve_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                              const CompileOptions& options);

/// The schedule of `rank` that combines a bucket of `layout` over all ranks.
///
/// Before: layout, grid and options are equal on all ranks. After running it on all ranks, all hold
///         identical bytes. Threads: pure; any. Errors: as `resolve_algorithm`.
Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options);

/// The schedule of `rank` that copies the bucket of `root` to all ranks.
Schedule compile_broadcast(int rank, int root, const BucketLayout& layout, const ProcessGrid& grid,
                           const CompileOptions& options);

}  // namespace kolo
