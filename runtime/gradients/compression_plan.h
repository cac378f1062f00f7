#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "compression/compression_spec.h"
#include "compression/sparse_all_reduce.h"
#include "fusion/bucket_planner.h"
#include "fusion/gradient.h"

namespace kolo {

/// Gradients of one set with one spec that share payloads and owners.
struct PlannedGroup {
  std::vector<std::size_t> gradients;  ///< In the order in which they are expected to be ready.
  CompressionSpec spec;
  std::size_t count = 0;  ///< Elements.

  /// "'fc1.weight' and 3 more".
  std::string name(std::span<const GradientSpec> all) const;
};

/// Groups the gradients whose `compression` is not empty, by spec and size: a property of the job,
/// whatever `fusion_bytes` is. Pure; equal on all ranks.
std::vector<PlannedGroup> plan_groups(std::span<const GradientSpec> gradients);

/// The group as its schedules and its codec know it; a route that was left open is kPairwise.
SparseOptions sparse_options(const PlannedGroup& group, std::span<const GradientSpec> gradients);

/// The group as one of the buckets of a set: for `Readiness` and for statistics.
PlannedBucket planned_bucket(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                             ReduceOp op);

}  // namespace kolo
