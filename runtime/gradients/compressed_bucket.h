#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "comm/base/buffer_view.h"
#include "compression/compressed_group.h"
#include "fusion/bucket_planner.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/compression_plan.h"
#include "runtime/observe/timeline.h"

namespace kolo {

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

/// Compiles both schedules and adds them as bucket `index` of `owner`. `views` say where the
/// tensors are. Errors: those of the executor and of the arena.
CompressedBucket add_compressed(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                                std::span<const BufferView> views, ReduceOp op, BucketOwner& owner,
                                std::size_t index, const PlanContext& context);

}  // namespace kolo
