#pragma once

#include "comm/collective/compile.h"
#include "comm/transport/transport.h"
#include "runtime/bucket_table.h"
#include "runtime/gradient_group.h"

namespace kolo {

/// Plans an agreed gradient set: buckets, their schedules and places, and where each gradient
/// lives. All ranks call it at the same point of the order of decisions, so that all plan alike.
/// Errors: KoloError(kConfig) for an algorithm that does not fit, alike on all ranks;
///         KoloError(kResources).
void plan_gradients(GradientGroup& group, BucketTable& buckets, Transport& transport,
                    const ProcessGrid& grid, std::size_t fusion_bytes,
                    const CompileOptions& options);

/// What the steps that finish a sum multiply by: 1 / world_size for an average, else 1.
double finishing_scale(ReduceOp op, const ProcessGrid& grid);

}  // namespace kolo
