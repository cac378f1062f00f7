#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/base/buffer_view.h"
#include "compression/compressed_group.h"
#include "compression/compression_spec.h"
#include "compression/sparse_all_reduce.h"
#include "fusion/bucket_planner.h"
#include "fusion/gradient.h"
#include "runtime/engine/bucket_table.h"
#include "runtime/observe/timeline.h"
#include "runtime/plan/plan_context.h"

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

/// A compression group as it runs: two schedules for the same tensors, with one codec.
struct CompressedBucket {
  PlannedGroup group;
  std::string name;
  PlannedBucket planned;
  std::shared_ptr<CompressedGroup> codec;
  BucketId sparse = 0;
  BucketId dense = 0;
  double predicted_us = 0;   ///< For a sparse step.
  Timeline::Span span = {};  ///< The last step on this rank.

  BucketId next() const { return codec->is_dense() ? dense : sparse; }
};

/// The group as its schedules and its codec know it; a route that was left open is kPairwise.
SparseOptions sparse_options(const PlannedGroup& group, std::span<const GradientSpec> gradients);

/// The group as one of the buckets of a set: for `Readiness` and for statistics.
PlannedBucket planned_bucket(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                             ReduceOp op);

/// Compiles both schedules and adds them as bucket `index` of `owner`. `views` say where the
/// tensors are. Errors: those of the executor and of the arena.
CompressedBucket add_compressed(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                                std::span<const BufferView> views, ReduceOp op, BucketOwner& owner,
                                std::size_t index, const PlanContext& context);

}  // namespace kolo
